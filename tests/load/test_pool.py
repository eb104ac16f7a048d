"""Tasks that share a pool of connections, against a server whose answer times are known."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.slo.objectives import Latency, Slo, ms
from tests.load.made_cells import cell
from tests.load.test_driver import measure, one_statement, only

MS = 1_000_000
STATEMENT = one_statement("SELECT /*delay=20*/ $1", kind="read", block=False)


def pooled(fake: Endpoint, tasks: int, pool: int, **changes: Any) -> Measurement:
    given = {"warmup_s": 0.2, "window_s": 1.0} | changes
    return measure(fake, STATEMENT, arrival=Arrival("pooled", tasks=tasks), connections=pool, **given)


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_beyond_the_pool_wait_their_turn(fake: Endpoint, workers: int) -> None:
    measured = pooled(fake, 8, 2, workers=workers)
    samples = only(measured)
    assert samples.count(Outcome.OK) == len(samples)
    # Four tasks to a connection: three others come first.
    assert median(samples.wait_ns) >= 3 * 19 * MS
    assert median(samples.service_ns) < median(samples.wait_ns)
    assert [a + b for a, b in zip(samples.wait_ns, samples.service_ns, strict=True)] == list(samples.latency_ns)
    assert len(samples) <= 2 * 1_000 / 20 + 2
    assert measured.generator.connection_wait_share > 0.9
    assert measured.generator.schedule_lag_p99_ns is None
    assert measured.connect.succeeded == 2


def test_tasks_that_find_a_connection_free_do_not_wait(fake: Endpoint) -> None:
    measured = pooled(fake, 2, 6)
    samples = only(measured)
    assert samples.count(Outcome.OK) == len(samples)
    assert median(samples.wait_ns) < 10 * MS
    assert measured.generator.connection_wait_share < 0.1
    assert len(samples) <= 2 * 1_000 / 20 + 2  # no more under way than there are tasks


def test_waiting_for_the_pool_is_no_sign_against_the_generator(fake: Endpoint) -> None:
    made = cell(pooled(fake, 30, 2), invariants=None)
    assert "30 tasks sharing the connections, 2 connections" in made.table()
    verdict = made.verdict(Slo(reads=Latency(p95=ms(100))))
    assert not any("queued for a connection" in sign for sign in verdict.generator_signs)
    assert verdict.outcome in ("fail", "invalid")  # invalid only where this machine was busy otherwise


def test_a_task_whose_request_fails_goes_on(fake: Endpoint) -> None:
    statement = one_statement("SELECT /*fail_always=23514*/ $1", kind="read", block=False)
    measured = measure(fake, statement, arrival=Arrival("pooled", tasks=4), connections=2, window_s=0.3)
    samples = only(measured)
    assert samples.count(Outcome.FAILED) == len(samples) > 4


def test_a_pool_needs_tasks(fake: Endpoint) -> None:
    with pytest.raises(ValueError, match="need tasks"):
        measure(fake, STATEMENT, arrival=Arrival("pooled"))
    with pytest.raises(ValueError, match="have no tasks"):
        measure(fake, STATEMENT, arrival=Arrival("closed", tasks=2))
