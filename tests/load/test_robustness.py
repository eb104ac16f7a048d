"""Cells on the embedded engine while something goes wrong: nothing hangs, nothing is lost, every request is told of."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import ConnectionFailed, ErrorClass, classify
from pytest_dsql.experiment.stretch import Beside
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Measurement, Outcome
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.faults.fault import Fault
from pytest_dsql.transaction import Mix, Tally
from pytest_dsql.workloads.transfers.schema import TransfersScale
from pytest_dsql.workloads.transfers.transactions import balance_read
from pytest_dsql.workloads.transfers.workload import Transfers
from tests.load.conftest import cell_plan
from tests.local.engines import ask, connect, endpoint_of
from tests.local.gateway.harness import wait_until

#: Few conflicts, so that what is counted comes from the trouble.
ACCOUNTS = 5_000
COMMITTED = (Outcome.OK, Outcome.OK_RETRIED)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        yield engine


@pytest.fixture(scope="module")
def transfers(engine: Engine) -> Transfers:
    workload = Transfers(TransfersScale("robustness", accounts=ACCOUNTS))
    workload.load(partial(connect, engine), dialect="dsql")
    return workload


@pytest.fixture
def controls(engine: Engine) -> Iterator[LocalControls]:
    controls = LocalControls(engine, engine.cluster)
    yield controls
    controls.reset()


@dataclass(frozen=True)
class Cell:
    """What a cell measured, and what its data says."""

    measured: Measurement
    violations: dict[str, int]

    def count(self, *outcomes: Outcome) -> int:
        return sum(samples.count(*outcomes) for samples in self.measured.samples.values())

    @property
    def errors(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for samples in self.measured.samples.values():
            for key, count in samples.errors.items():
                total[key] = total.get(key, 0) + count
        return total

    @property
    def messages(self) -> dict[str, str]:
        return {key: text for samples in self.measured.samples.values() for key, text in samples.messages.items()}

    def began_after(self, seconds: float, *outcomes: Outcome) -> int:
        """Requests with one of these outcomes that began later than so long after the window opened."""
        return sum(
            1
            for samples in self.measured.samples.values()
            for start, outcome in zip(samples.intended_ns, samples.outcome, strict=True)
            if start > seconds * 1e9 and outcome in outcomes
        )


Measure = Callable[..., Cell]
#: An attempt may begin so long after its request, and an answer that comes is waited for: this machine may be busy.
PATIENT: dict[str, Any] = {"answer_timeout_s": 30.0, "retry": RetryPolicy(deadline_s=20.0), "window_s": 3.0}
#: As little patience as shows what becomes of answers that never come. A busy machine may seem as silent now and then.
ALERT: dict[str, Any] = PATIENT | {"answer_timeout_s": 3.0, "window_s": 5.0}


def adding(controls: LocalControls, *faults: Fault) -> Callable[[], None]:
    """Something to do beside a cell: not before, when its workload prepares it on the same cluster."""

    def add() -> None:
        for fault in faults:
            controls.faults.add(fault)

    return add


def injected(controls: LocalControls) -> int:
    return sum(controls.faults.counts().values())


@pytest.fixture
def measure(engine: Engine, transfers: Transfers) -> Measure:
    """Run a cell of transfers, with `during` beside it, and check that it adds up and lost nothing."""

    def run(during: Callable[[], object] | None = None, *, endpoint: Endpoint | None = None, **changes: Any) -> Cell:
        given: dict[str, Any] = {"connections": 4, "window_s": 1.5, "scale": transfers.scale} | changes
        opener = partial(connect, engine)
        slots = given["connections"]
        claimed = transfers.begin_cell(opener, cell="robustness", slots=slots, requests_hint=10_000)
        beside = Beside(during)
        planned_s = given["window_s"] + given.get("drain_s", 5.0) + given.get("warmup_s", 0.0)
        began = time.monotonic()
        measured = run_cell(
            cell_plan(endpoint or endpoint_of(engine), given.pop("mix", transfers.mix), run=claimed, **given),
            progress=beside.watching(lambda _: None),
        )
        assert time.monotonic() - began < planned_s + 20, "the cell hung"
        beside.wait(120)
        beside.raise_its_error()
        tally = Tally(committed=measured.committed, ambiguous=measured.ambiguous, complete=True)
        cell = Cell(measured, transfers.check_cell(opener, claimed, tally))
        assert measured.interrupted is None
        assert not any(cell.violations.values()), cell.violations
        assert cell.violations, "no invariant was checked"
        for samples in measured.samples.values():
            assert samples.count(*Outcome) == len(samples) == len(samples.latency_ns)
        for key, text in cell.messages.items():
            assert classify(None if key == "connection" else key, text) is not ErrorClass.OTHER, (key, text)
        return cell

    return run


def test_without_trouble_nothing_fails(measure: Measure) -> None:
    cell = measure(window_s=0.5)
    assert cell.count(*COMMITTED) > 0
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS, Outcome.CANCELLED) == 0
    assert not set(cell.errors) - {"40001"}


def kill_a_backend(engine: Engine) -> None:
    """PostgreSQL ends all sessions when one of its processes was killed, recovers, and starts anew."""
    os.kill(int(ask(engine, "SELECT pg_backend_pid()")), signal.SIGKILL)


def test_a_restart_of_the_server_costs_what_was_under_way_and_no_more(measure: Measure, engine: Engine) -> None:
    cell = measure(lambda: kill_a_backend(engine), window_s=9.0)
    assert cell.errors.get("connection", 0) + cell.errors.get("57P02", 0) > 0
    assert cell.measured.connect.succeeded > 4
    assert cell.began_after(7.0, *COMMITTED) > 0
    assert cell.began_after(7.0, Outcome.FAILED, Outcome.AMBIGUOUS) == 0


def test_a_stall_of_everybody_is_charged_to_whom_it_hit(measure: Measure, controls: LocalControls) -> None:
    stall = Fault.stall(ms=1_500, cluster=True, first=1)
    cell = measure(adding(controls, stall), mix=Mix({balance_read: 1}), window_s=2.5)
    assert injected(controls) == 1
    [reads] = cell.measured.samples.values()
    slow = sum(latency > 1_200_000_000 for latency in reads.latency_ns)
    assert 1 <= slow <= 4  # at most one for each connection: closed loop
    assert cell.count(Outcome.FAILED) == 0


@pytest.mark.parametrize("where", ["update", "begin"])
def test_a_connection_that_says_nothing_any_more_is_given_up(
    measure: Measure, controls: LocalControls, where: Literal["update", "begin"]
) -> None:
    cell = measure(adding(controls, Fault.silence(on=where, first=3)), **ALERT)
    assert injected(controls) == 3
    assert cell.errors["connection"] >= 3
    assert cell.messages["connection"] == "no answer for 3 s"
    # There was time for a further attempt.
    assert cell.count(Outcome.OK_RETRIED) >= 3
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS, Outcome.CANCELLED) == 0
    assert 4 + 3 <= cell.measured.connect.succeeded <= 4 + cell.errors["connection"]  # one for each, and no more


def test_the_answers_of_slow_statements_are_waited_for(measure: Measure, controls: LocalControls) -> None:
    stall = Fault.stall(ms=5_000, on="update", first=4)
    cell = measure(adding(controls, stall), **PATIENT | {"answer_timeout_s": 10.0, "window_s": 5.5})
    assert injected(controls) == 4
    assert "connection" not in cell.errors


@pytest.mark.parametrize(("landed", "silent"), [(True, True), (True, False), (False, False)])
def test_the_receipt_decides_about_a_commit_whose_answer_is_lost(
    measure: Measure, controls: LocalControls, landed: bool, silent: bool
) -> None:
    lost = Fault.silence if silent else Fault.disconnect
    given = ALERT if silent else PATIENT
    cell = measure(adding(controls, lost(on="commit", after=landed, table="transfers", first=3)), **given)
    assert injected(controls) == 3
    assert cell.errors["connection"] >= 3 if silent else cell.errors["connection"] == 3
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS) == 0
    if not landed:
        assert cell.count(Outcome.OK_RETRIED) >= 3


def test_a_commit_that_nobody_can_tell_about_is_ambiguous_and_upsets_no_invariant(
    measure: Measure, controls: LocalControls
) -> None:
    def lose_one_commit_and_let_nobody_in() -> None:
        controls.faults.add(Fault.refuse("08006"))
        number = controls.faults.add(Fault.disconnect(on="commit", after=True, table="transfers", first=1))
        wait_until(lambda: controls.faults.counts()[number] == 1)
        time.sleep(3.0)  # longer than a receipt is looked for
        controls.faults.clear()

    cell = measure(lose_one_commit_and_let_nobody_in, connections=2, window_s=5.0)
    assert cell.count(Outcome.AMBIGUOUS) == 1
    assert sum(cell.measured.ambiguous.values()) == 1
    assert cell.began_after(4.0, *COMMITTED) > 0


def test_connections_that_the_server_cuts_are_made_anew(measure: Measure, controls: LocalControls) -> None:
    controls.limits.set(session_s=1.0)
    cell = measure(window_s=3.5, retry=PATIENT["retry"])
    # One that is cut in the pause before a further attempt costs none.
    assert cell.errors["connection"] >= 1
    assert cell.measured.connect.succeeded >= 8
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS) == 0


def test_connections_that_are_replaced_in_time_are_never_cut(measure: Measure, controls: LocalControls) -> None:
    controls.limits.set(session_s=2.0)
    cell = measure(window_s=3.5, connection_lifetime_s=0.5)
    assert not set(cell.errors) - {"40001"}
    assert cell.measured.connect.succeeded >= 4 * 4
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS) == 0


def test_an_hour_later_every_connection_and_the_token_are_new(measure: Measure, controls: LocalControls) -> None:
    cell = measure(lambda: controls.clock.move(3600), window_s=5.0)
    assert cell.errors["connection"] >= 4
    # Until the machine's next second a new token can't be told from the old one.
    assert set(cell.measured.connect.refused) <= {"08006"}
    assert cell.measured.connect.succeeded >= 8
    assert cell.measured.connect.tokens_signed >= 2
    assert cell.began_after(4.0, *COMMITTED) > 0
    assert cell.began_after(4.0, Outcome.FAILED) == 0
    assert cell.count(Outcome.AMBIGUOUS) == 0


def test_a_refused_connection_is_asked_for_again(measure: Measure, controls: LocalControls) -> None:
    cell = measure(adding(controls, Fault.refuse("53400", first=6), Fault.disconnect(on="update", first=4)), **PATIENT)
    assert cell.measured.connect.refused == {"53400": 6}
    assert cell.errors["connection"] == 4
    assert cell.errors["53400"] == 6
    assert cell.count(Outcome.FAILED, Outcome.AMBIGUOUS) == 0


def test_first_connections_that_answer_nothing_end_the_cell_with_an_error(
    engine: Engine, transfers: Transfers, controls: LocalControls
) -> None:
    with controls.faults(Fault.refuse("08006")), pytest.raises(ConnectionFailed, match="unable to accept connection"):
        run_cell(cell_plan(endpoint_of(engine), transfers.mix, scale=transfers.scale))


def test_a_connection_that_breaks_or_is_silent_before_the_cell_costs_only_its_round_trips(
    measure: Measure, controls: LocalControls
) -> None:
    with controls.faults(Fault.silence(on="statement", sql="^SELECT 1$", first=1)) as injected:
        cell = measure()
        assert injected.count == 1
    assert cell.measured.rtt_ns is None
    assert cell.measured.connect.succeeded == 5
    assert cell.errors.get("connection", 0) == 0


def test_the_kernel_is_told_to_notice_a_peer_that_is_gone(engine: Engine) -> None:
    with connect(engine) as connection:
        sock = socket.socket(fileno=os.dup(connection.fileno()))
        with sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
