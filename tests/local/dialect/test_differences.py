"""What the dialect does otherwise than DSQL, as docs/engine.md says: each difference shown."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest


@pytest.fixture
def connection(dsql_connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    dsql_connection.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    return dsql_connection


def test_a_call_of_a_function_that_writes_counts_as_a_read(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "CREATE FUNCTION add(int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES ($1, 1) RETURNING k'"
    )
    with connection.transaction():
        assert connection.execute("SELECT add(1)").fetchone() == (1,)
        connection.execute("CREATE TABLE beside (k int)")


def test_functions_hold_queries_only(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="in CREATE FUNCTION: Vacuum"):
        connection.execute("CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'ANALYZE t'")


def test_left_join_lateral_works(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO t VALUES (1, 5)")
    query = "SELECT k, w FROM t LEFT JOIN LATERAL (SELECT v + 1 AS w WHERE v > 1) x ON true"
    assert connection.execute(query).fetchall() == [(1, 6)]
