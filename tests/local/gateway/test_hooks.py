"""What hooks can do to a session's statements, in both protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local import dialect
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import login
from pytest_dsql.local.gateway.hooks import Action, Disconnect, Fail, FailAfter, Stall, Statement, TransactionState
from tests.local.gateway.harness import RunningGateway, ask, direct, next_result, pipeline_results, run_gateway

REFUSAL = Refusal("54000", "no more of that", "detail", "hint")


class Telling:
    """Does what a test asks for, and remembers what it was told."""

    wary = wants_completions = True

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.action: Callable[[Statement, TransactionState], Action | None] = lambda _s, _t: None
        self.verdict: Callable[[Statement, TransactionState], Refusal | None] = lambda _s, _t: None

    def minds(self, transaction: TransactionState | None) -> bool:
        return True

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:
        self.told.append(statement.kind)
        return self.action(statement, transaction)

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:
        self.told.append((statement.kind, rows, transaction.rows))
        return self.verdict(statement, transaction)

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        self.told.append(committed)


@pytest.fixture(scope="module")
def hooked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"), judge=dialect.judge)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Telling:
    hook = Telling()
    monkeypatch.setattr(login, "FACTORIES", (lambda _cluster, _user: hook,))
    return hook


@pytest.fixture
def table(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with direct(cluster, "admin") as owner:
        owner.execute("CREATE TABLE told (a int)")
        yield owner
        owner.execute("DROP TABLE told")


@pytest.fixture(params=["simple", "extended"])
def run(
    request: pytest.FixtureRequest, hooked: RunningGateway, hook: Telling, table: psycopg.Connection[Any]
) -> Iterator[Callable[[str], str]]:
    """Run a statement; give its command tag or SQLSTATE, with the transaction's state behind it."""
    with hooked.connect() as connection:
        pgconn = connection.pgconn

        def run(sql: str) -> str:
            if request.param == "simple":
                result = ask(pgconn, "send_query", sql.encode())
            else:
                result = ask(pgconn, "send_query_params", sql.encode(), [])
            said = result.error_field(pq.DiagnosticField.SQLSTATE) or result.command_status or b""
            return f"{said.decode()} {pq.TransactionStatus(pgconn.transaction_status).name}"

        yield run


def rows(owner: psycopg.Connection[Any]) -> int:
    found = owner.execute("SELECT count(*) FROM told").fetchone()
    assert found is not None
    return int(found[0])


def test_a_transaction_is_told_of(run: Callable[[str], str], hook: Telling) -> None:
    run("BEGIN")
    run("INSERT INTO told SELECT generate_series(1, 3)")
    run("DELETE FROM told WHERE a = 1")
    run("COMMIT")
    assert [told for told in hook.told if isinstance(told, str)] == ["begin", "dml", "dml", "commit"]
    assert [told for told in hook.told if isinstance(told, tuple)] == [("dml", 3, 3), ("dml", 1, 4)]
    assert hook.told[-1] is True


def test_a_statement_alone_is_a_transaction(run: Callable[[str], str], hook: Telling) -> None:
    run("INSERT INTO told VALUES (1)")
    assert hook.told == ["dml", ("dml", 1, 1), True]


def test_a_failing_statement_ends_its_transaction(run: Callable[[str], str], hook: Telling) -> None:
    run("SELECT 1/0")
    assert hook.told == ["select", False]


def test_fail_is_an_error_of_the_statement(
    run: Callable[[str], str], hook: Telling, table: psycopg.Connection[Any]
) -> None:
    hook.action = lambda statement, _: Fail(REFUSAL) if statement.kind == "dml" else None
    assert run("INSERT INTO told VALUES (1)") == "54000 IDLE"
    run("BEGIN")
    assert run("INSERT INTO told VALUES (1)") == "54000 INERROR"
    assert run("COMMIT") == "ROLLBACK IDLE"
    assert rows(table) == 0


def test_a_commit_that_fails_leaves_the_session_idle(
    run: Callable[[str], str], hook: Telling, table: psycopg.Connection[Any]
) -> None:
    hook.action = lambda statement, _: Fail(REFUSAL) if statement.kind == "commit" else None
    run("BEGIN")
    run("INSERT INTO told VALUES (1)")
    assert run("COMMIT") == "54000 IDLE"
    assert hook.told[-1] is False
    assert rows(table) == 0


def test_a_refusal_of_what_is_done_undoes_it(
    run: Callable[[str], str], hook: Telling, table: psycopg.Connection[Any]
) -> None:
    hook.verdict = lambda statement, transaction: REFUSAL if transaction.rows > 2 else None
    assert run("INSERT INTO told SELECT generate_series(1, 3)") == "54000 IDLE"
    assert rows(table) == 0
    run("BEGIN")
    assert run("INSERT INTO told SELECT generate_series(1, 2)") == "INSERT 0 2 INTRANS"
    assert run("INSERT INTO told VALUES (3)") == "54000 INERROR"
    assert run("SELECT 1") == "25P02 INERROR"
    assert run("COMMIT") == "ROLLBACK IDLE"
    assert rows(table) == 0


def test_fail_after_takes_effect(run: Callable[[str], str], hook: Telling, table: psycopg.Connection[Any]) -> None:
    hook.action = lambda statement, _: FailAfter(REFUSAL) if statement.kind == "commit" else None
    run("BEGIN")
    run("INSERT INTO told VALUES (1)")
    assert run("COMMIT") == "54000 IDLE"
    assert rows(table) == 1
    hook.action = lambda statement, _: FailAfter(REFUSAL) if statement.kind == "dml" else None
    assert run("INSERT INTO told VALUES (2)") == "54000 IDLE"
    assert rows(table) == 2


@pytest.mark.parametrize(("after", "left"), [(False, 0), (True, 1)])
def test_disconnect_cuts_before_or_after(
    run: Callable[[str], str], hook: Telling, table: psycopg.Connection[Any], after: bool, left: int
) -> None:
    hook.action = lambda statement, _: Disconnect(after) if statement.kind == "dml" else None
    with pytest.raises(psycopg.OperationalError):
        run("INSERT INTO told VALUES (1)")
    assert rows(table) == left


def test_a_stall_takes_its_time(run: Callable[[str], str], hook: Telling) -> None:
    hook.action = lambda _s, _t: Stall(0.05)
    started = time.perf_counter()
    assert run("SELECT 1") == "SELECT 1 IDLE"
    assert time.perf_counter() - started >= 0.05


def test_every_statement_of_a_query_string_is_asked_about(hooked: RunningGateway, hook: Telling, table: object) -> None:
    with hooked.connect() as connection:
        connection.pgconn.send_query(b"INSERT INTO told VALUES (1); SELECT 1; DELETE FROM told")
        while next_result(connection.pgconn):
            pass
    assert [told for told in hook.told if isinstance(told, str)] == ["dml", "select", "dml"]
    assert hook.told.count(True) == 1


def test_every_statement_of_a_pipeline_is_asked_about(
    hooked: RunningGateway, hook: Telling, table: psycopg.Connection[Any]
) -> None:
    hook.action = lambda statement, transaction: Fail(REFUSAL) if transaction.dml == 2 else None
    with hooked.connect() as connection:
        pgconn = connection.pgconn
        ask(pgconn, "send_prepare", b"again", b"INSERT INTO told VALUES (1)")
        pgconn.enter_pipeline_mode()
        for _ in range(3):
            pgconn.send_query_prepared(b"again", [])
        pgconn.pipeline_sync()
        pgconn.send_query_params(b"SELECT count(*) FROM told", [])
        pgconn.pipeline_sync()
        found = pipeline_results(pgconn, 2)
        pgconn.exit_pipeline_mode()
    assert [result.command_status for result in found] == [b"INSERT 0 1", b"INSERT 0 1", b"", b"SELECT 1"]
    assert found[-1].get_value(0, 0) == b"0"
