"""The driver against a server whose answer times and failures are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.load import driver as driver_module
from pytest_dsql.load.connecting import Connecting
from pytest_dsql.load.driver import Driver
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome, Samples
from pytest_dsql.load.plan import WorkerShare
from pytest_dsql.transaction import CellRun, Context, Kind, Mix, Rejected, Steps, Transaction
from tests.load.conftest import cell_plan, fake_endpoint

_prefixes = itertools.count()


def one_statement(sql: str, *, kind: Kind = "write", block: bool = True) -> Transaction:
    def steps(ctx: Context) -> Steps:
        yield sql, (ctx.operation_id,)
        return None

    return Transaction(steps, kind, "statement", block)


def measure(endpoint: Endpoint, transaction: Transaction, *, receipts: bool = True, **changes: object) -> Measurement:
    connections = changes.setdefault("connections", 2)
    assert isinstance(connections, int)
    run = CellRun(
        number=1,
        operation_prefix=f"d{next(_prefixes)}-",
        slots=connections,
        receipt_sql="SELECT /*receipt*/ $1" if receipts else None,
    )
    return run_cell(cell_plan(endpoint, Mix({transaction: 1}), run=run, **changes))


def only(measured: Measurement) -> Samples:
    (samples,) = measured.samples.values()
    assert len(samples) > 0
    return samples


@pytest.mark.parametrize("block", [True, False])
def test_latencies_are_the_servers_answer_times(fake: Endpoint, block: bool) -> None:
    samples = only(measure(fake, one_statement("SELECT /*delay=20*/ $1", kind="read", block=block)))
    # The least disturbed one: of a busy machine, nothing more can be said of the others than that they took longer.
    assert 19_000_000 <= min(samples.latency_ns) < 60_000_000
    assert samples.count(Outcome.OK) == len(samples)
    assert samples.service_ns == samples.latency_ns


def test_a_request_begins_when_its_first_statement_is_sent(fake: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        until = perf_counter_ns() + 20_000_000  # a transaction slow to make its statement
        while perf_counter_ns() < until:
            pass
        yield "SELECT $1", (ctx.operation_id,)
        return None

    samples = only(measure(fake, Transaction(steps, "read", "slow", block=False), connections=1))
    assert min(samples.latency_ns) < 15_000_000


def test_a_conflict_is_run_again_and_its_pause_is_backoff(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*fail=40001*/ $1"))
    samples = only(measured)
    assert samples.count(Outcome.OK_RETRIED) == len(samples)
    assert set(samples.attempts) == {2}
    assert samples.errors == {"40001": len(samples)}
    assert samples.messages == {"40001": "as told: 40001"}
    assert [a + b for a, b in zip(samples.service_ns, samples.backoff_ns, strict=True)] == list(samples.latency_ns)
    assert max(samples.backoff_ns) > 0
    assert_all_of_the_window(measured.committed["statement"], samples)


def test_a_conflict_without_end_fails_after_three_attempts(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*fail_always=40001*/ $1"))
    samples = only(measured)
    assert samples.count(Outcome.FAILED) == len(samples)
    assert set(samples.attempts) == {3}
    assert samples.errors == {"40001": 3 * len(samples)}
    assert measured.committed == {"statement": 0}


def test_a_fault_of_the_statement_is_not_run_again(fake: Endpoint) -> None:
    samples = only(measure(fake, one_statement("SELECT /*fail_always=23514*/ $1")))
    assert samples.count(Outcome.FAILED) == len(samples)
    assert set(samples.attempts) == {1}


def test_a_connection_lost_before_commit_is_replaced_and_the_transaction_run_again(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*die*/ $1"))
    samples = only(measured)
    assert set(samples.attempts) == {3}
    assert samples.errors == {"connection": 3 * len(samples)}
    assert measured.ambiguous == {"statement": 0}
    assert measured.connect.succeeded > 2


@pytest.mark.parametrize(
    ("how", "outcome", "attempts"), [("landed", Outcome.OK, 1), ("vanished", Outcome.OK_RETRIED, 2)]
)
def test_the_receipt_tells_whether_a_lost_commit_landed(
    fake: Endpoint, how: str, outcome: Outcome, attempts: int
) -> None:
    measured = measure(fake, one_statement(f"SELECT /*lose_commit={how}*/ $1"))
    samples = only(measured)
    assert samples.count(outcome) == len(samples)
    assert set(samples.attempts) == {attempts}
    assert_all_of_the_window(measured.committed["statement"], samples)


def assert_all_of_the_window(count: int, samples: Samples) -> None:
    """A request is decided on before the window ends and begins when it is sent: the last ones may begin after it."""
    assert len(samples) <= count <= len(samples) + 2  # connections


def test_a_lost_commit_without_receipts_is_ambiguous(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*lose_commit=landed*/ $1"), receipts=False)
    samples = only(measured)
    assert samples.count(Outcome.AMBIGUOUS) == len(samples)
    assert_all_of_the_window(measured.ambiguous["statement"], samples)
    assert measured.committed == {"statement": 0}


def test_a_read_lost_during_commit_is_run_again(fake: Endpoint) -> None:
    samples = only(measure(fake, one_statement("SELECT /*lose_commit=vanished*/ $1", kind="read"), receipts=False))
    assert samples.count(Outcome.OK_RETRIED) == len(samples)


def test_a_request_still_in_flight_after_the_drain_is_cancelled(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*delay=20000*/ $1"), window_s=0.5, drain_s=0.1)
    samples = only(measured)
    assert samples.count(Outcome.CANCELLED) == len(samples) == 2
    assert min(samples.latency_ns) >= 100_000_000  # the drain at least
    assert measured.ambiguous == {"statement": 0}  # its COMMIT was never sent


def test_a_cancelled_statement_that_commits_by_itself_is_doubtful(fake: Endpoint) -> None:
    statement = one_statement("SELECT /*delay=20000*/ $1", block=False)
    measured = measure(fake, statement, window_s=0.5, drain_s=0.1)
    assert measured.ambiguous == {"statement": 2}


def test_a_connection_of_age_is_replaced_between_requests(fake: Endpoint) -> None:
    measured = measure(fake, one_statement("SELECT /*delay=5*/ $1"), connection_lifetime_s=0.05, window_s=1.0)
    samples = only(measured)
    assert samples.count(Outcome.OK) == len(samples)
    assert measured.connect.succeeded > 4


def test_churn_makes_a_connection_per_request_and_counts_refusals(fake_port: int) -> None:
    endpoint = fake_endpoint(fake_port, "refuse53400")  # every second connection
    statement = one_statement("SELECT $1", kind="read")
    measured = measure(endpoint, statement, arrival=Arrival("churn"), connections=1)
    samples = only(measured)
    assert 0 < samples.errors["53400"] <= measured.connect.refused["53400"] <= samples.errors["53400"] + 1
    assert_all_of_the_window(measured.connect.succeeded + samples.count(Outcome.FAILED), samples)
    assert samples.count(Outcome.OK, Outcome.OK_RETRIED) > 0
    assert set(measured.connect.phases_ns) >= {"tcp", "authentication", "startup", "total"}


def test_a_rejection_is_rolled_back_and_counted_apart(fake: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        yield "SELECT $1", (ctx.operation_id,)
        return Rejected("no")

    measured = measure(fake, Transaction(steps, "write", "rejected"))
    samples = only(measured)
    assert samples.count(Outcome.REJECTED) == len(samples)
    assert measured.committed == {"rejected": 0}


def test_a_pipeline_fails_as_a_whole_and_is_run_again(fake: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        first, second = yield [("SELECT $1", (ctx.operation_id,)), ("SELECT /*fail=40001*/ $1", (ctx.operation_id,))]
        assert first.one() == second.one() == ("ok",)
        return None

    samples = only(measure(fake, Transaction(steps, "write", "pipeline")))
    assert samples.count(Outcome.OK_RETRIED) == len(samples)


def test_first_connections_are_made_so_many_at_once(fake: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: set[int] = set()
    most = 0
    numbers = itertools.count()

    def counted(*arguments: Any, decided: Callable[[Any], None], **more: Any) -> Connecting:
        nonlocal most
        number = next(numbers)
        under_way.add(number)
        most = max(most, len(under_way))

        def done(made: object) -> None:
            under_way.discard(number)
            decided(made)

        return Connecting(*arguments, decided=done, **more)

    monkeypatch.setattr(driver_module, "Connecting", counted)
    monkeypatch.setattr(driver_module, "_AT_ONCE", 3)
    plan = cell_plan(fake, Mix({one_statement("SELECT $1"): 1}), connections=10)
    loop = Loop()
    driver = Driver(
        WorkerShare(plan, 0, 0, 10), loop, TokenSource(fake), report=lambda _batch: None, finished=lambda: None
    )
    try:
        driver.connect_all()
        assert (driver.connects.stats.succeeded, most, under_way) == (10, 3, set())
    finally:
        for session in driver._sessions:
            session.disconnect()
        loop.close()
