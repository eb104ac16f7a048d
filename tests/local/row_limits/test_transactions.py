"""The rules on transactions, through every protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local.controls import LocalControls

Connection = psycopg.Connection[Any]

MULTIPLE = "multiple ddl statements not supported in a transaction"
MIXED = "ddl and dml are not supported in the same transaction"
OLD = "transaction age limit of 300s exceeded"


def simple(connection: Connection, sql: str) -> None:
    connection.execute(sql.encode())


def extended(connection: Connection, sql: str) -> None:
    connection.execute(sql.encode(), (), prepare=False, binary=True)


def prepared(connection: Connection, sql: str) -> None:
    connection.execute(sql.encode(), (), prepare=True)


def piped(connection: Connection, sql: str) -> None:
    with connection.pipeline():
        connection.execute(sql.encode())


Run = Callable[[Connection, str], None]
each_protocol = pytest.mark.parametrize("run", [simple, extended, prepared, piped])


def state(connection: Connection) -> str:
    return pq.TransactionStatus(connection.info.transaction_status).name


@pytest.fixture
def table(connection: Connection) -> Connection:
    connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    return connection


@each_protocol
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("CREATE TABLE a (k int)", "CREATE TABLE b (k int)", MULTIPLE),
        ("ALTER TABLE t ADD COLUMN w int", "CREATE INDEX ASYNC ON t (v)", MULTIPLE),
        ("GRANT SELECT ON t TO PUBLIC", "REVOKE SELECT ON t FROM PUBLIC", MULTIPLE),
        ("CREATE TABLE a (k int)", "INSERT INTO t VALUES (1, 'a')", MIXED),
        ("CREATE VIEW a AS SELECT 1 AS b", "WITH w AS (DELETE FROM t RETURNING k) SELECT count(*) FROM w", MIXED),
        ("INSERT INTO t VALUES (1, 'a')", "CREATE TABLE a (k int)", MIXED),
        ("DELETE FROM t", "CREATE INDEX ASYNC ON t (v)", MIXED),
        ("UPDATE t SET v = 'a'", "GRANT SELECT ON t TO PUBLIC", MIXED),
    ],
)
def test_what_may_not_stand_together(table: Connection, run: Run, first: str, second: str, message: str) -> None:
    run(table, "BEGIN")
    run(table, first)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"^{message}$"):
        run(table, second)
    assert state(table) == "INERROR"
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        run(table, second)
    assert table.execute("COMMIT").statusmessage == "ROLLBACK"
    assert table.execute("SELECT count(*) FROM pg_class WHERE relname = 'a'").fetchall() == [(0,)]


@each_protocol
def test_reading_beside_ddl(table: Connection, run: Run) -> None:
    run(table, "BEGIN")
    run(table, "SELECT * FROM t")
    run(table, "CREATE TABLE a (k int)")
    run(table, "SELECT * FROM a")
    run(table, "COMMIT")
    assert table.execute("SELECT count(*) FROM a").fetchall() == [(0,)]


def test_each_transaction_has_its_ddl(table: Connection) -> None:
    for name in ("a", "b"):
        for end in ("ROLLBACK", "COMMIT"):
            table.execute("BEGIN")
            table.execute(f"CREATE TABLE {name} (k int)".encode())
            table.execute(end.encode())
        table.execute(f"INSERT INTO {name} VALUES (1)".encode())


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE a (k int); CREATE TABLE b (k int)", MULTIPLE),
        ("CREATE TABLE a (k int); INSERT INTO a VALUES (1)", MIXED),
        ("INSERT INTO t VALUES (1, ''); CREATE TABLE a (k int)", MIXED),
    ],
)
def test_a_query_string_is_one_transaction(table: Connection, sql: str, message: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"^{message}$"):
        table.execute(sql.encode())
    assert state(table) == "IDLE"
    assert table.execute("SELECT to_regclass('a'), count(*) FROM t").fetchall() == [(None, 0)]


def test_the_transactions_of_a_query_string_are_several(table: Connection) -> None:
    table.execute("BEGIN; CREATE TABLE a (k int); COMMIT; BEGIN; INSERT INTO a VALUES (1); COMMIT")
    table.execute("BEGIN; CREATE VIEW b AS SELECT 1 AS c; COMMIT")


def test_a_group_up_to_a_sync_is_one_transaction(table: Connection) -> None:
    def group() -> None:
        with table.pipeline():
            table.execute("INSERT INTO t VALUES (1, '')")
            table.execute("CREATE TABLE a (k int)")

    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"^{MIXED}$"):
        group()
    assert table.execute("SELECT to_regclass('a'), count(*) FROM t").fetchall() == [(None, 0)]


@each_protocol
@pytest.mark.parametrize("statement", ["SELECT 1", "INSERT INTO t VALUES (2, '')", "SHOW timezone"])
def test_an_old_transaction_fails_at_its_next_statement(
    table: Connection, controls: LocalControls, run: Run, statement: str
) -> None:
    run(table, "BEGIN")
    run(table, "INSERT INTO t VALUES (1, '')")
    controls.clock.move(301)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"^{OLD}") as caught:
        run(table, statement)
    assert str(caught.value.diag.message_detail).startswith("Current transaction age 30")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        run(table, statement)
    assert table.execute("COMMIT").statusmessage == "ROLLBACK"
    assert table.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


@each_protocol
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN READ ONLY"])
def test_an_old_transaction_fails_at_its_commit_and_is_over(
    table: Connection, controls: LocalControls, run: Run, begin: str
) -> None:
    run(table, begin)
    run(table, "SELECT 1")
    controls.clock.move(301)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"^{OLD}"):
        run(table, "COMMIT")
    assert state(table) == "IDLE"
    run(table, "SELECT 1")


def test_an_old_transaction_that_failed_answers_rollback(table: Connection, controls: LocalControls) -> None:
    table.execute("BEGIN")
    with pytest.raises(psycopg.errors.DivisionByZero):
        table.execute("SELECT 1 / 0")
    controls.clock.move(301)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        table.execute("SELECT 1")
    assert table.execute("COMMIT").statusmessage == "ROLLBACK"


def test_an_idle_session_does_not_age(table: Connection, controls: LocalControls) -> None:
    controls.clock.move(301)
    table.execute("INSERT INTO t VALUES (1, '')")
    table.execute("ANALYZE t")


@pytest.mark.parametrize("setting", ["BEGIN READ ONLY", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"])
def test_a_read_only_transaction_writes_nothing(table: Connection, setting: str) -> None:
    table.execute(setting.encode())
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="cannot execute INSERT in a read-only transaction"):
        table.execute("INSERT INTO t VALUES (1, '')")
    table.execute("ROLLBACK")
    table.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
    table.execute("INSERT INTO t VALUES (1, '')")
