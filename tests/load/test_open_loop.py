"""Open loop against a server whose answer times and failures are known."""

from __future__ import annotations

from statistics import median

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.arrivals import schedule_of
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome, Samples
from pytest_dsql.transaction import CellRun, Context, Mix, Rejected, Steps, Transaction
from tests.load.conftest import cell_plan

MS = 1_000_000
POISSON = Arrival("poisson", 200.0)


def statement(sql: str, *, block: bool = False) -> Transaction:
    def steps(ctx: Context) -> Steps:
        yield sql, (ctx.operation_id,)
        return None

    return Transaction(steps, "read", "statement", block)


def measure(endpoint: Endpoint, transaction: Transaction, arrival: Arrival = POISSON, **changes: object) -> Measurement:
    connections = changes.setdefault("connections", 8)
    assert isinstance(connections, int)
    run = CellRun(number=1, operation_prefix=f"{transaction.name}-{id(transaction)}-", slots=connections)
    return run_cell(cell_plan(endpoint, Mix({transaction: 1}), run=run, arrival=arrival, **changes))


def only(measured: Measurement) -> Samples:
    (samples,) = measured.samples.values()
    assert len(samples) > 0
    return samples


def assert_parts_add_up(samples: Samples) -> None:
    parts = zip(samples.wait_ns, samples.service_ns, samples.backoff_ns, strict=True)
    assert [sum(part) for part in parts] == list(samples.latency_ns)
    assert min(*samples.wait_ns, *samples.service_ns, *samples.backoff_ns) >= 0


@pytest.mark.parametrize("arrival", [POISSON, Arrival("constant", 200.0)])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_request_of_the_schedule_is_made(fake: Endpoint, arrival: Arrival, workers: int) -> None:
    samples = only(measure(fake, statement("SELECT $1"), arrival, workers=workers, warmup_s=0.2, window_s=0.5))
    due = schedule_of(arrival, [1.0], seed=1, length_s=0.7, worker=0, workers=1).after_ns
    assert list(samples.intended_ns) == [after - 200 * MS for after in due if after >= 200 * MS]
    assert samples.count(Outcome.OK) == len(samples)


def test_a_request_begins_when_it_was_to_not_when_it_was_sent(fake: Endpoint) -> None:
    samples = only(
        measure(fake, statement("SELECT /*delay=40*/ $1"), Arrival("constant", 50.0), connections=1, window_s=0.6)
    )
    assert_parts_add_up(samples)
    # One connection carries 25 of the 50 that arrive in a second: each waits 20 ms longer than the one before.
    assert len(samples) == 30
    assert samples.wait_ns[-1] > 15 * 20 * MS
    assert 39 * MS <= min(samples.service_ns) < 2 * 40 * MS
    assert samples.latency_ns[-1] > samples.wait_ns[-1] + 39 * MS


def test_a_free_connection_takes_what_a_slow_one_would_hold_up(fake: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        slow = ctx.rng.random() < 0.1
        yield f"SELECT /*delay={1_500 if slow else 1}*/ $1", (ctx.operation_id,)
        return None

    one_in_ten = Transaction(steps, "read", "statement", block=False)
    measured = measure(fake, one_in_ten, Arrival("constant", 100.0), connections=16, window_s=0.5)
    samples = only(measured)
    assert 0 < sum(service > 1_400 * MS for service in samples.service_ns) < 16
    assert median(samples.wait_ns) < 15 * MS
    assert max(samples.wait_ns) < 750 * MS
    assert measured.generator.connection_wait_p99_ns < 750 * MS
    assert measured.generator.schedule_lag_p99_ns is not None


def test_waiting_for_a_connection_shows_in_the_generators_health(fake: Endpoint) -> None:
    measured = measure(
        fake, statement("SELECT /*delay=40*/ $1"), Arrival("constant", 50.0), connections=1, window_s=0.6
    )
    assert measured.generator.connection_wait_p99_ns > 15 * 20 * MS


def test_what_could_not_be_started_within_two_seconds_is_skipped(fake: Endpoint) -> None:
    measured = measure(
        fake, statement("SELECT /*delay=900*/ $1"), Arrival("constant", 20.0), connections=1, window_s=3.0
    )
    samples = only(measured)
    assert len(samples) == 60  # whatever the server does
    assert samples.count(Outcome.SKIPPED) > 40
    assert samples.count(Outcome.OK) >= 3
    assert sum(measured.committed.values()) == samples.count(Outcome.OK)
    assert_parts_add_up(samples)


def test_a_conflict_is_run_again_without_losing_its_place(fake: Endpoint) -> None:
    measured = measure(fake, statement("SELECT /*fail=40001*/ $1", block=True))
    samples = only(measured)
    assert samples.count(Outcome.OK_RETRIED) == len(samples)
    assert_parts_add_up(samples)
    assert max(samples.backoff_ns) > 0


def test_a_connection_that_breaks_is_replaced(fake: Endpoint) -> None:
    measured = measure(fake, statement("SELECT /*die*/ $1", block=True), Arrival("constant", 20.0), connections=2)
    samples = only(measured)
    assert len(samples) == 6
    assert samples.count(Outcome.FAILED) == 6
    assert samples.errors == {"connection": 18}


def test_a_connection_comes_of_age_in_open_loop_too(fake: Endpoint) -> None:
    measured = measure(fake, statement("SELECT $1"), connections=2, connection_lifetime_s=0.1)
    assert measured.connect.succeeded > 2
    samples = only(measured)
    assert samples.count(Outcome.OK) == len(samples)


def test_a_business_no_is_a_rejection(fake: Endpoint) -> None:
    def steps(_ctx: Context) -> Steps:
        yield "SELECT $1", ("x",)
        return Rejected("no")

    samples = only(measure(fake, Transaction(steps, "read", "statement")))
    assert samples.count(Outcome.REJECTED) == len(samples)
    assert_parts_add_up(samples)


def test_transactions_come_in_the_schedules_order(fake: Endpoint) -> None:
    def named(name: str) -> Transaction:
        def steps(ctx: Context) -> Steps:
            yield "SELECT $1", (ctx.operation_id,)
            return None

        return Transaction(steps, "read", name, block=False)

    mix = Mix({named("often"): 0.75, named("seldom"): 0.25})
    measured = run_cell(cell_plan(fake, mix, arrival=POISSON, window_s=0.5))
    schedule = schedule_of(POISSON, [0.75, 0.25], seed=1, length_s=0.5, worker=0, workers=1)
    for place, name in enumerate(("often", "seldom")):
        due = [at for at, which in zip(schedule.after_ns, schedule.transactions, strict=True) if which == place]
        assert list(measured.samples[name].intended_ns) == due
