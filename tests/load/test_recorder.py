from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.measurement import Outcome, Samples
from pytest_dsql.load.recorder import Recorder, Tallies, merge
from pytest_dsql.transaction import Context, Steps, transaction

_COLUMNS = ("intended_ns", "latency_ns", "wait_ns", "service_ns", "backoff_ns", "outcome", "attempts")


@transaction(kind="read")
def look(ctx: Context) -> Steps:
    yield "SELECT 1"
    return None


@transaction(kind="write")
def change(ctx: Context) -> Steps:
    yield "UPDATE x"
    return None


requests = st.tuples(
    st.integers(0, 10**12),
    st.integers(0, 10**10),
    st.integers(0, 10**9),
    st.sampled_from(list(Outcome)),
    st.integers(1, 9),
)


def samples_of(rows: list[tuple[int, int, int, Outcome, int]]) -> Samples:
    samples = Samples("look", "read")
    for intended, latency, backoff, outcome, attempts in rows:
        samples.intended_ns.append(intended)
        samples.latency_ns.append(latency + backoff)
        samples.wait_ns.append(0)
        samples.service_ns.append(latency)
        samples.backoff_ns.append(backoff)
        samples.outcome.append(outcome)
        samples.attempts.append(attempts)
    return samples


def rows_of(samples: Samples) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(samples, name) for name in _COLUMNS), strict=True))


@given(st.lists(st.lists(requests, max_size=20), max_size=5))
def test_merging_keeps_every_request_and_orders_by_intended_start(
    parts: list[list[tuple[int, int, int, Outcome, int]]],
) -> None:
    merged = merge(Samples("look", "read"), [samples_of(part) for part in parts])
    assert sorted(rows_of(merged)) == sorted(row for part in parts for row in rows_of(samples_of(part)))
    assert list(merged.intended_ns) == sorted(merged.intended_ns)


def test_merging_adds_errors_and_keeps_the_first_message() -> None:
    first, second = Samples("look", "read"), Samples("look", "read")
    first.errors, first.messages = {"40001": 2}, {"40001": "one"}
    second.errors, second.messages = {"40001": 1, "connection": 4}, {"40001": "two"}
    merged = merge(Samples("look", "read"), [first, second])
    assert merged.errors == {"40001": 3, "connection": 4}
    assert merged.messages == {"40001": "one"}


@given(
    clean=st.lists(st.tuples(st.booleans(), st.integers(0, 1000), st.integers(0, 1000))),
    other=st.lists(
        st.tuples(st.booleans(), st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(list(Outcome)))
    ),
    batches=st.integers(1, 3),
)
def test_outcomes_add_up_and_only_the_window_is_sampled(
    clean: list[tuple[bool, int, int]], other: list[tuple[bool, int, int, Outcome]], batches: int
) -> None:
    recorder = Recorder((look, change), window_start_ns=300, window_end_ns=700)
    tallies = Tallies.of((look, change))
    for number in range(batches):
        for which, start, duration in clean[number::batches]:
            starts, ends, _ = recorder.clean[which]
            starts.append(start)
            ends.append(start + duration)
        for which, start, duration, outcome in other[number::batches]:
            recorder.ended(which, outcome, intended_ns=start, end_ns=start + duration, backoff_ns=0, attempts=2)
        tallies.add(recorder.take())
    samples = tallies.samples(300, 700)
    begun = [start for _, start, _ in clean] + [start for _, start, _, _ in other]
    assert recorder.recorded == sum(tallies.outcomes) == len(begun)
    assert sum(map(len, samples.values())) == sum(300 <= start < 700 for start in begun)
    committed = len(clean) + sum(outcome in (Outcome.OK, Outcome.OK_RETRIED) for *_, outcome in other)
    assert sum(tallies.committed) == committed
    for one in samples.values():
        assert array("q", map(sum, zip(one.wait_ns, one.service_ns, one.backoff_ns, strict=True))) == one.latency_ns


def test_a_doubtful_end_is_counted_as_ambiguous_for_the_invariants() -> None:
    recorder = Recorder((look, change), window_start_ns=0, window_end_ns=10)
    recorder.ended(1, Outcome.CANCELLED, intended_ns=50, end_ns=60, backoff_ns=0, attempts=1, in_doubt=True)
    recorder.ended(1, Outcome.CANCELLED, intended_ns=50, end_ns=60, backoff_ns=0, attempts=1)
    batch = recorder.take()
    assert batch.ambiguous == [0, 1]
    assert batch.committed == [0, 0]


def test_errors_outside_the_window_are_counted_but_not_sampled() -> None:
    recorder = Recorder((look, change), window_start_ns=100, window_end_ns=200)
    recorder.error(0, 50, "40001", "before")
    recorder.error(0, 150, "40001", "inside")
    batch = recorder.take()
    assert batch.errors == {"40001": 2}
    assert batch.samples[0].errors == {"40001": 1}
    assert batch.samples[0].messages == {"40001": "inside"}
