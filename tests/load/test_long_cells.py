"""Cells whose requests are counted and not kept, on worker processes and a real PostgreSQL."""

from __future__ import annotations

import os
import signal

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.fleet import CellInterrupted, Progress, run_cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.load.queue import AHEAD_NS
from pytest_dsql.load.statistics import ANSWERED
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.transaction import Mix
from tests.load.conftest import cell_plan
from tests.load.made_cells import cell
from tests.load.test_fleet import look, quantity, take

MIX = Mix({look: 0.5, take: 0.5})


def whole(measured: Measurement) -> dict[str, int]:
    assert measured.samples == {}
    assert measured.counted is not None
    return {name: len(digest) for name, digest in measured.counted.digests.items()}


@pytest.mark.parametrize(("arrival", "workers"), [(Arrival("closed"), 2), (Arrival("poisson", 400.0), 1)])
def test_a_long_cell_counts_what_the_database_has(endpoint: Endpoint, arrival: Arrival, workers: int) -> None:
    before = quantity(endpoint)
    plan = cell_plan(endpoint, MIX, arrival=arrival, workers=workers, warmup_s=0.2, window_s=2.6, long_from_s=1.0)
    measured = run_cell(plan)
    assert quantity(endpoint) - before == measured.committed["take"] > 0
    counts = whole(measured)
    assert 0 < counts["take"] <= measured.committed["take"] + measured.requests["take"].count(Outcome.REJECTED)
    made = cell(measured)
    assert len(made.series.success) == 3
    assert sum(made.series.success) == sum(
        one.count(Outcome.OK, Outcome.OK_RETRIED) for one in measured.requests.values()
    )
    assert all(p99 is not None for p99 in made.series.p99_ns)
    assert made.latency("look").p50_ms <= made.latency("look").p99_ms <= made.latency("look").max_ms
    if arrival.rate is not None:
        assert sum(counts.values()) == pytest.approx(arrival.rate * 2.6, abs=4 * (arrival.rate * 2.6) ** 0.5)
        assert made.generator.schedule_lag_p99_ns is not None
        # The schedule was written out while the cell went on: it was longer than what is written out at first.
        assert (plan.warmup_s + plan.window_s) * 1e9 > AHEAD_NS
    assert made.verdict(Slo(reads=Latency(p95=ms(5000)))).outcome == "pass"
    assert made.verdict(Slo(writes=Latency(p50=ms(0.001)))).outcome in ("fail", "invalid")


def test_an_interrupted_long_cell_keeps_what_it_counted(endpoint: Endpoint) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "window" and progress.elapsed_s > 1.2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(CellInterrupted) as caught:
        run_cell(cell_plan(endpoint, MIX, window_s=1_000.0), progress=interrupt)
    measured = caught.value.measurement
    assert measured is not None
    made = cell(measured, invariants={})
    assert sum(whole(measured).values()) > 0
    assert len(made.series.success) >= 2
    assert len(made.series.success) - 1 <= measured.duration_s + 1  # a request may begin while the word to stop comes
    assert made.verdict(Slo(reads=Latency(p95=ms(5000)))).outcome == "inconclusive"


def test_the_series_of_a_cell_that_keeps_its_requests_has_exact_percentiles(endpoint: Endpoint) -> None:
    measured = run_cell(cell_plan(endpoint, MIX, window_s=1.4))
    made = cell(measured)
    assert (made.is_counted, made.series.step_s, len(made.series.success)) == (False, 1, 2)
    answered = sorted(
        latency
        for samples in measured.samples.values()
        for start, latency, end in zip(samples.intended_ns, samples.latency_ns, samples.outcome, strict=True)
        if start < 1_000_000_000 and end in ANSWERED
    )
    assert made.series.max_ns[0] == answered[-1]
    assert made.series.p50_ns[0] == answered[-(-len(answered) // 2) - 1]
    assert sum(made.series.attempts) == sum(sum(samples.attempts) for samples in measured.samples.values())
    assert len(answered) <= made.series.attempts[0]
    assert all(p50 <= p99 for p50, p99 in zip(made.series.p50_ns, made.series.p99_ns, strict=True) if p50 and p99)
