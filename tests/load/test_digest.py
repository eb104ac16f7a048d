"""Requests that are only counted tell a verdict the same as those that are kept, in room that does not grow."""

from __future__ import annotations

import pickle
import random
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.load.digest import Condenser, slices_of
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome, Samples
from pytest_dsql.load.merging import merge_measurements
from pytest_dsql.load.recorder import Batch, Tallies
from pytest_dsql.load.sampled import PARTS, interval_of, successes_of, summary_of
from pytest_dsql.load.series import MOST_POINTS
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.slo.throughput import SLICES
from pytest_dsql.transaction import Context, Steps, transaction
from tests.load.made_cells import HEALTHY, cell, measurement

MS = 1_000_000
SECOND = 1_000_000_000
OPENS = 7 * SECOND
NAMES = ("product_read", "order_create")


@transaction(kind="read")
def product_read(_ctx: Context) -> Steps:
    yield "SELECT 1", ()
    return None


@transaction(kind="write")
def order_create(_ctx: Context) -> Steps:
    yield "SELECT 1", ()
    return None


MIX = (product_read, order_create)


def batches(seconds: int, rate: int, *, seed: int = 1, waiting: bool = False, stalls: bool = False) -> Sequence[Batch]:
    """What a worker would report: four batches a second; one request in fifty takes another course."""
    chance = random.Random(seed)
    found = []
    for quarter in range(seconds * 4):
        clean = [(array("q"), array("q"), array("q")) for _ in MIX]
        others = [Samples(one.name, one.kind) for one in MIX]
        outcomes, committed = [0] * len(Outcome), [0, 0]
        slow = stalls and chance.random() < 0.02
        for number in range(rate // 4):
            which = number % 2
            start = OPENS + quarter * SECOND // 4 + number * SECOND // rate
            wait = int(chance.expovariate(1) * MS) if waiting else 0
            latency = wait + int((200 if slow else chance.lognormvariate(1.5, 0.6)) * MS)
            if chance.random() < 0.98:
                for column, value in zip(clean[which], (start, start + latency, wait), strict=True):
                    if waiting or column is not clean[which][2]:
                        column.append(value)
                outcome = Outcome.OK
            else:
                outcome = chance.choice([*Outcome])
                one = others[which]
                one.intended_ns.append(start - OPENS)
                one.latency_ns.append(latency)
                one.wait_ns.append(wait)
                one.service_ns.append(latency - wait)
                one.backoff_ns.append(0)
                one.outcome.append(outcome)
                one.attempts.append(0 if outcome is Outcome.SKIPPED else 2)
                if outcome is Outcome.FAILED:
                    one.errors["40001"] = one.errors.get("40001", 0) + 2
            outcomes[outcome] += 1
            committed[which] += outcome in (Outcome.OK, Outcome.OK_RETRIED)
        found.append(Batch(clean, others, committed, [0, 0], outcomes, {}))
    return found


def both(given: Sequence[Batch], seconds: int) -> tuple[Measurement, Measurement]:
    """The same requests, kept and counted."""
    closes = OPENS + seconds * SECOND
    kept, counted = Tallies.of(MIX), Condenser(MIX, window_start_ns=OPENS, window_end_ns=closes)
    for one in given:
        kept.add(one)
        counted.add(one)
    assert (kept.outcomes, kept.committed) == (counted.outcomes, counted.committed)
    samples = kept.samples(OPENS, closes)
    first = measurement(*samples.values(), duration_s=float(seconds))
    return first, replace(first, samples={}, counted=counted.result(float(seconds)))


@pytest.mark.parametrize("waiting", [False, True])
def test_counting_tells_the_same_as_keeping(waiting: bool) -> None:
    kept, counted = both(batches(40, 400, waiting=waiting), 40)
    assert kept.arrivals == counted.arrivals
    for name in NAMES:
        one, other = kept.requests[name], counted.requests[name]
        assert len(one) == len(other)
        assert [one.count(each) for each in Outcome] == [other.count(each) for each in Outcome]
        assert (one.errors, one.messages) == (other.errors, other.messages)
        for part in PARTS:
            exact, found = summary_of(one, part), summary_of(other, part)
            assert (exact.n, exact.max_ms) == (found.n, found.max_ms)
            assert exact.mean_ms == pytest.approx(found.mean_ms)
            for percentile in ("p50_ms", "p95_ms", "p99_ms", "p999_ms"):
                assert getattr(exact, percentile) <= getattr(found, percentile) + 1e-9
                assert getattr(found, percentile) == pytest.approx(getattr(exact, percentile), rel=0.0011, abs=0.001)
        for exact_end, end in zip(interval_of(one, 0.99), interval_of(other, 0.99), strict=True):
            assert exact_end is not None
            assert end == pytest.approx(exact_end, rel=0.1)
    whole, parts = cell(kept).series, cell(counted).series
    assert (whole.step_s, whole.success, whole.attempts, whole.failures) == (
        parts.step_s,
        parts.success,
        parts.attempts,
        parts.failures,
    )
    for exact_point, point in zip(whole.p99_ns, parts.p99_ns, strict=True):
        assert point == pytest.approx(exact_point, rel=0.011)


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("waiting", [False, True])
def test_a_verdict_counts_the_same_over_and_sees_the_same_clusters(stalls: bool, waiting: bool) -> None:
    slo = Slo(reads=Latency(p50=ms(6), p95=ms(12.5)), writes=Latency(p99=ms(50)), max_failure_rate=0.02, min_tps=100)
    kept, counted = both(batches(60, 400, waiting=waiting, stalls=stalls), 60)
    first, second = cell(kept).verdict(slo), cell(counted).verdict(slo)
    assert first.outcome == second.outcome
    for one, other in zip(first.objectives, second.objectives, strict=True):
        assert (one.metric, one.n, one.over, one.unfinished, one.outcome) == (
            other.metric,
            other.n,
            other.over,
            other.unfinished,
            other.outcome,
        )
        assert other.design_effect == pytest.approx(one.design_effect, rel=0.25)
    if stalls:
        assert max(one.design_effect for one in second.objectives) > 3


def test_what_commits_outside_of_the_window_is_told_alike() -> None:
    """Requests of the warm-up, of the window and of its end: in open loop what committed in it makes the rate."""
    closes = OPENS + 10 * SECOND
    kept, counted = Tallies.of(MIX), Condenser(MIX, window_start_ns=OPENS, window_end_ns=closes)
    rows = [
        *[(OPENS - SECOND // 2, OPENS - 1)] * 2,  # the warm-up's own
        *[(OPENS - SECOND // 2, OPENS + MS)] * 3,
        *[(OPENS + SECOND, OPENS + 2 * SECOND)] * 40,
        *[(closes - SECOND, closes + SECOND)] * 20,
        *[(closes, closes + SECOND)] * 5,  # arrived too late to count
    ]
    clean = [(array("q", starts), array("q", ends), array("q")) for starts, ends in (zip(*rows, strict=True), ((), ()))]
    retried = [Samples(one.name, one.kind) for one in MIX]
    for start, latency in ((2 * SECOND, SECOND), (9 * SECOND, 2 * SECOND)):
        its = retried[1]
        its.intended_ns.append(start)
        its.latency_ns.append(latency)
        for column in (its.wait_ns, its.service_ns, its.backoff_ns):
            column.append(0)
        its.attempts.append(2)
        its.outcome.append(Outcome.OK_RETRIED)
    batch = Batch(clean, retried, [70, 2], [0, 0], [70, 2, 0, 0, 0, 0, 0, 0], {})
    kept.add(batch)
    counted.add(batch)
    assert kept.spill(OPENS, closes) == counted.spill == 20 + 1 - 3
    other = Condenser(MIX, window_start_ns=OPENS, window_end_ns=closes)
    other.include(counted)
    other.include(counted)
    assert other.spill == 36
    measured = measurement(*kept.samples(OPENS, closes).values(), duration_s=10.0, spill=18)
    assert cell(measured).tps == 6.2
    assert cell(replace(measured, arrival=Arrival("poisson", 6.2))).tps == 4.4
    assert merge_measurements(measured, measured).spill == 36


def test_a_stall_at_the_end_of_the_window_is_one_event_for_both() -> None:
    """All that hang in it are cancelled after the drain: long over the limit, and all at once."""
    given = list(batches(20, 400))
    stalled = [Samples(each.name, each.kind) for each in MIX]
    for number in range(200):
        its = stalled[number % 2]
        its.intended_ns.append(19_900_000_000 + number)
        its.latency_ns.append(5_000 * MS)
        for column in (its.wait_ns, its.service_ns, its.backoff_ns, its.attempts):
            column.append(0)
        its.outcome.append(Outcome.CANCELLED)
    outcomes = [0] * len(Outcome)
    outcomes[Outcome.CANCELLED] = 200
    given.append(Batch([(array("q"), array("q"), array("q")) for _ in MIX], stalled, [0, 0], [0, 0], outcomes, {}))
    kept, counted = both(given, 20)
    slo = Slo(reads=Latency(p99=ms(50)), writes=Latency(p99=ms(50)))
    first, second = cell(kept).verdict(slo), cell(counted).verdict(slo)
    assert (first.outcome, second.outcome) == ("inconclusive", "inconclusive")
    for one, other in zip(first.objectives, second.objectives, strict=True):
        assert (one.n, one.over) == (other.n, other.over)
        assert other.design_effect == pytest.approx(one.design_effect, rel=0.1)


def test_a_database_that_is_too_slow_fails_also_where_only_its_connections_were_too_few() -> None:
    slo = Slo(reads=Latency(p95=ms(4)), writes=Latency(p95=ms(4)))
    kept, counted = both(batches(40, 400, waiting=True), 40)
    for measured in (kept, counted):
        measured.generator = replace(HEALTHY, connection_wait_p99_ns=5 * MS)
        verdict = cell(measured).verdict(slo)
        assert verdict.outcome == "fail"
        assert any(reason.startswith("Without the time that requests waited") for reason in verdict.reasons)


def test_limits_that_cant_be_counted_exactly_are_refused() -> None:
    _, counted = both(batches(2, 100), 2)
    with pytest.raises(UsageError, match=r"four digits .*: 12\.345 ms"):
        cell(counted).verdict(Slo(reads=Latency(p95=ms(12.345))))


@pytest.mark.parametrize("stalls", [False, True])
def test_windows_that_were_counted_become_one_as_those_that_were_kept_do(stalls: bool) -> None:
    slo = Slo(reads=Latency(p50=ms(6), p95=ms(12.5)), writes=Latency(p99=ms(50)), max_failure_rate=0.02, min_tps=100)
    windows = [both(batches(20, 400, seed=seed, stalls=stalls), 20) for seed in (1, 2)]
    before = [one.requests["product_read"].count(*Outcome) for _, one in windows]
    kept, counted = (merge_measurements(*both) for both in zip(*windows, strict=True))
    assert [one.requests["product_read"].count(*Outcome) for _, one in windows] == before
    first, second = cell(kept), cell(counted)
    assert (kept.arrivals, first.outcomes, first.errors) == (counted.arrivals, second.outcomes, second.errors)
    assert first.tps_interval == pytest.approx(second.tps_interval)
    assert (first.series.success, first.series.failures) == (second.series.success, second.series.failures)
    for one, other in zip(first.verdict(slo).objectives, second.verdict(slo).objectives, strict=True):
        assert (one.metric, one.n, one.over, one.outcome) == (other.metric, other.n, other.over, other.outcome)
        assert other.design_effect == pytest.approx(one.design_effect, rel=0.3)
        if stalls and one.metric == "p99":
            assert other.design_effect > 2


def test_the_rate_of_a_short_window_that_was_counted_is_known_as_well_as_of_one_that_was_kept() -> None:
    kept, counted = both(batches(5, 400), 5)  # its slices are shorter than a point of its series
    assert successes_of(counted) == successes_of(kept)


def test_kept_and_counted_requests_are_not_merged() -> None:
    with pytest.raises(ValueError, match="only counted"):
        merge_measurements(*both(batches(2, 100), 2))


def test_requests_outside_the_window_are_left_out() -> None:
    [batch] = batches(1, 100)[:1]
    counted = Condenser(MIX, window_start_ns=OPENS + 100 * SECOND, window_end_ns=OPENS + 200 * SECOND)
    counted.add(replace(batch, samples=[Samples(one.name, one.kind) for one in MIX]))
    assert sum(counted.committed) > 0
    assert sum(len(one) for one in counted.result(100.0).digests.values()) == 0


def held(seconds: int, rate: int, points: int) -> int:
    """Return how many bytes a window of so many seconds, alike all of them, is kept in."""
    quarters = batches(1, rate)
    counted = Condenser(MIX, window_start_ns=OPENS, window_end_ns=OPENS + seconds * SECOND, most_points=points)
    for second in range(seconds):
        later = second * SECOND
        for quarter in quarters:
            moved = [
                (array("q", (at + later for at in starts)), array("q", (at + later for at in ends)), waits)
                for starts, ends, waits in quarter.clean
            ]
            counted.add(replace(quarter, clean=moved))
    return len(pickle.dumps(counted, protocol=pickle.HIGHEST_PROTOCOL))


def test_memory_does_not_grow_with_the_duration() -> None:
    # Each of their stretches and points has every duration that there is: more seconds add none.
    short, long = held(260, 200, points=260), held(2_600, 200, points=260)
    assert long < 1.3 * short
    # Kept, a request takes 43 bytes, and as many again while the columns are merged.
    assert long / (2_600 * 200) < 4


def test_a_window_of_a_day_has_no_more_points_than_one_of_an_hour() -> None:
    counted = Condenser(MIX, window_start_ns=OPENS, window_end_ns=OPENS + 24 * 3600 * SECOND)
    series = counted.result(24 * 3600.0).series
    assert series.step_s == 24
    assert len(series.success) == len(series.p99_ns) == MOST_POINTS


@pytest.mark.parametrize("counts", [[(0.5, 1), (1.0, 1)], [(0.25, 3), (0.5, 7)], [(1.0, 1), (2.0, 0)]])
def test_slices_of_two_windows_add_up_to_both(counts: list[tuple[float, int]]) -> None:
    parts = [(stretch_s, [count] * SLICES) for stretch_s, count in counts]
    slices = slices_of(parts, SLICES * sum(stretch_s for stretch_s, _ in counts))
    assert len(slices) == SLICES
    assert sum(slices) == SLICES * sum(count for _, count in counts)
