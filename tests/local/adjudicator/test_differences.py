"""What a transaction that has met a rival shows otherwise than DSQL, as docs/engine.md says: each difference shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.local.adjudicator.racing import Connect, Make


@pytest.fixture
def contested(connect: Connect, make: Make) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose transaction has met a rival, which is still open."""
    make("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
    with connect() as rival, connect() as connection:
        rival.execute("BEGIN")
        rival.execute("UPDATE t SET v = 1")
        connection.execute("BEGIN")
        assert connection.execute("UPDATE t SET v = 2").rowcount == 1
        yield connection
        connection.rollback()
        rival.rollback()


def test_its_plans_and_its_search_path_show_the_engine_s_own(contested: psycopg.Connection[Any]) -> None:
    plan = contested.execute("EXPLAIN (VERBOSE, COSTS OFF) SELECT v FROM t").fetchall()
    assert "pytest_dsql_engine" in str(plan)
    assert "pytest_dsql_engine" in str(contested.execute("SELECT current_schemas(false)").fetchone())
