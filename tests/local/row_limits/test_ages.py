"""Statements that are their own transactions, and take longer than a transaction may."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local.controls import LocalControls
from tests.local.row_limits.test_transactions import Run, each_protocol, extended, piped, prepared, simple

Connection = psycopg.Connection[Any]

OLD = r"^transaction age limit of 0\.1s exceeded"
SLOW = {
    "query": "SELECT pg_sleep(0.4)",
    "query with rows": "SELECT k, pg_sleep(0.2) FROM t",
    "insert": "INSERT INTO t SELECT 5, pg_sleep(0.4)::text",
    "update": "UPDATE t SET v = pg_sleep(0.2)::text",
    "returning": "DELETE FROM t RETURNING pg_sleep(0.2)",
    "function": "SELECT write_slowly()",
}


@pytest.fixture
def table(connection: Connection, controls: LocalControls) -> Connection:
    connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO t VALUES (1, ''), (2, '')")
    connection.execute(
        "CREATE OR REPLACE FUNCTION write_slowly() RETURNS int LANGUAGE sql"
        " AS 'INSERT INTO t SELECT 6, pg_sleep(0.4)::text RETURNING k'"
    )
    controls.limits.set(transaction_age_s=0.1)
    return connection


@pytest.mark.parametrize(
    ("run", "name"),
    [(simple, name) for name in SLOW]
    + [(run, name) for run in (extended, prepared, piped) for name in ("query", "insert")],
)
def test_it_fails_and_has_done_nothing(table: Connection, run: Run, name: str) -> None:
    for _ in range(2):  # what is known of a text may take another way the second time
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=OLD) as caught:
            run(table, SLOW[name])
        assert str(caught.value.diag.message_detail) == "Current transaction age 0s exceeds 0.1s"
        assert table.info.transaction_status == pq.TransactionStatus.IDLE
    assert table.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [(1, ""), (2, "")]


@each_protocol
def test_in_a_transaction_it_runs_to_its_end(table: Connection, run: Run) -> None:
    run(table, "BEGIN")
    run(table, "SELECT pg_sleep(0.4)")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=OLD):
        run(table, "COMMIT")
    assert table.info.transaction_status == pq.TransactionStatus.IDLE


def test_a_query_string_fails_whole(table: Connection) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=OLD):
        table.execute("INSERT INTO t VALUES (7, ''); UPDATE t SET v = pg_sleep(0.2)::text")
    assert table.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [(1, ""), (2, "")]


def test_the_clock_may_move_meanwhile(table: Connection, controls: LocalControls) -> None:
    controls.limits.set(transaction_age_s=300)
    table.execute("SELECT pg_sleep(0)")  # the next ones take the shortest way

    for sql in ("SELECT pg_sleep(1)", "INSERT INTO t SELECT 5, pg_sleep(1)::text"):
        mover = threading.Timer(0.5, controls.clock.move, [301])
        mover.start()
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=r"^transaction age limit of 300s") as caught:
            table.execute(sql)
        mover.join()
        assert str(caught.value.diag.message_detail).startswith("Current transaction age 30")
    assert table.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_a_session_that_is_always_busy_does_not_age(table: Connection, controls: LocalControls) -> None:
    controls.limits.set(transaction_age_s=1.0)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        table.execute("SELECT 1")
        table.execute("UPDATE t SET v = '' WHERE k = 1")
