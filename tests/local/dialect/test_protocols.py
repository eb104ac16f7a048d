"""The same rules whatever protocol carries a statement: simple, extended, prepared under a name, in a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import pq

REFUSED = [
    "TRUNCATE t",
    "SAVEPOINT s",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "SET statement_timeout = 5",
    "SELECT pg_advisory_lock(1)",
    "SELECT set_config('work_' || 'mem', '1MB', false)",
    "SELECT k FROM t FOR SHARE",
    "CREATE TABLE x (k money)",
    "CREATE TABLE x (k serial)",
    "CREATE TABLE x (LIKE shown)",
    "CREATE INDEX x ON t (v)",
    "CREATE INDEX ASYNC x ON t (v DESC)",
    "ALTER TABLE t DROP COLUMN k",
    "ALTER TABLE t ADD COLUMN x int DEFAULT 1",
    "CREATE SEQUENCE x",
    "CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT pg_advisory_lock(1); SELECT 1'",
    "DISCARD ALL",
    "COPY t FROM '/tmp/x'",
    "EXPLAIN CREATE TABLE x AS SELECT 1",
    "CREATE SCHEMA x CREATE SEQUENCE y",
]

Said = tuple[bytes | None, bytes | None]


def _error(result: pq.abc.PGresult) -> Said:
    fields = pq.DiagnosticField
    return result.error_field(fields.SQLSTATE), result.error_field(fields.MESSAGE_PRIMARY)


def _simple(connection: pq.abc.PGconn, sql: bytes) -> Said:
    return _error(connection.exec_(sql))


def _extended(connection: pq.abc.PGconn, sql: bytes) -> Said:
    return _error(connection.exec_params(sql, None))


def _prepared(connection: pq.abc.PGconn, sql: bytes) -> Said:
    prepared = connection.prepare(b"", sql)
    return _error(prepared if prepared.status == pq.ExecStatus.FATAL_ERROR else connection.exec_prepared(b"", None))


def _pipelined(connection: pq.abc.PGconn, sql: bytes) -> Said:
    connection.enter_pipeline_mode()
    for text in (b"SELECT 1", sql, b"SELECT 2"):
        connection.send_query_params(text, None)
    connection.pipeline_sync()
    results: list[pq.abc.PGresult] = []
    while not results or results[-1].status != pq.ExecStatus.PIPELINE_SYNC:
        results += [result for _ in range(2) if (result := connection.get_result()) is not None]
    connection.exit_pipeline_mode()
    first, failed, skipped, _ = results
    assert first.status == pq.ExecStatus.TUPLES_OK
    assert skipped.status == pq.ExecStatus.PIPELINE_ABORTED
    return _error(failed)


@pytest.fixture
def connection(dsql_connection: psycopg.Connection[Any]) -> pq.abc.PGconn:
    dsql_connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    dsql_connection.execute("CREATE VIEW shown AS SELECT ARRAY[k] AS a FROM t")
    return dsql_connection.pgconn


@pytest.mark.parametrize("send", [_extended, _prepared, _pipelined])
def test_a_refusal_is_the_same(connection: pq.abc.PGconn, send: Callable[[pq.abc.PGconn, bytes], Said]) -> None:
    statements = [sql.encode() for sql in REFUSED]
    simple = [_simple(connection, sql) for sql in statements]
    assert None not in {sqlstate for sqlstate, _ in simple}
    assert [send(connection, sql) for sql in statements] == simple


ANALYSED = {
    "SELECT k FROM t FOR SHARE -- comment": "0A000",
    "SELECT k FROM missing FOR SHARE;": "42P01",
    "SELECT nope FROM t FOR NO KEY UPDATE": "42703",
    "SELECT count(*) FROM t FOR SHARE": "0A000",
    "WITH x AS (SELECT k FROM t FOR SHARE) SELECT * FROM x, missing": "42P01",
    "SELECT k FROM t WHERE k = $1 AND v = $2 FOR SHARE": "0A000",
}


@pytest.mark.parametrize("sql", ANALYSED)
def test_a_locking_clause_is_refused_when_all_else_is_right(connection: pq.abc.PGconn, sql: str) -> None:
    parameters = [b"1", b"x"][: sql.count("$")]
    sqlstate, message = _error(connection.exec_params(sql.encode(), parameters))
    assert (sqlstate or b"").decode() == ANALYSED[sql]
    assert b"pytest" not in (message or b"")
    if "count" in sql:
        assert message == b"FOR SHARE is not allowed with aggregate functions"
