"""A function that writes, called by a query: its writes are part of the conflict like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest


@pytest.mark.parametrize("binary", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize("call", ["SELECT add(1)", "SELECT ADD(1)", 'SELECT U&"\\0061dd"(1)'])
def test_what_a_function_writes_is_not_lost_unseen(
    dsql_connect: Callable[..., psycopg.Connection[Any]], call: str, binary: bool
) -> None:
    one = dsql_connect()
    one.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    one.execute("INSERT INTO t VALUES (1, 1)")
    one.execute(
        "CREATE FUNCTION add(int) RETURNS int LANGUAGE sql AS 'UPDATE t SET v = v + 1 WHERE k = $1 RETURNING v'"
    )
    other = dsql_connect()  # after the catalog's changes
    one.execute("BEGIN")
    assert one.execute(call, binary=binary).fetchone() == (2,)
    assert other.execute(call, binary=binary).fetchone() == (2,)
    with pytest.raises(psycopg.errors.SerializationFailure, match="OC000"):
        one.execute("COMMIT")
    assert other.execute("SELECT v FROM t").fetchone() == (2,)


@pytest.mark.parametrize("binary", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize("query", ["SELECT v FROM added", "SELECT v FROM public.on_top"])
def test_what_a_view_calls_is_not_lost_unseen(
    dsql_connect: Callable[..., psycopg.Connection[Any]], query: str, binary: bool
) -> None:
    one = dsql_connect()
    one.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    one.execute("INSERT INTO t VALUES (1, 1)")
    one.execute("CREATE FUNCTION add() RETURNS int LANGUAGE sql AS 'UPDATE t SET v = v + 1 WHERE k = 1 RETURNING v'")
    one.execute("CREATE VIEW added AS SELECT add() AS v")
    one.execute("CREATE VIEW on_top AS SELECT v FROM added")
    other = dsql_connect()  # after the catalog's changes
    one.execute("BEGIN")
    assert one.execute(query, binary=binary).fetchone() == (2,)
    assert other.execute(query, binary=binary).fetchone() == (2,)
    with pytest.raises(psycopg.errors.SerializationFailure, match="OC000"):
        one.execute("COMMIT")
    assert other.execute("SELECT v FROM t").fetchone() == (2,)
