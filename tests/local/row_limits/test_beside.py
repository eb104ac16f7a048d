"""DDL beside what called functions write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

MIXTURE = "ddl and dml are not supported in the same transaction"


@pytest.fixture
def writing(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A connection where the function `add` writes a row."""
    connection.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    connection.execute(
        "CREATE FUNCTION add(int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES ($1, 1) RETURNING k'"
    )
    yield connection
    connection.rollback()
    connection.execute("DROP FUNCTION add")


@pytest.mark.parametrize("ddl", ["CREATE TABLE u (k int)", "GRANT ALL ON t TO PUBLIC", "CREATE INDEX ASYNC ON t (v)"])
def test_no_ddl_after_a_function_that_wrote(writing: psycopg.Connection[Any], ddl: str) -> None:
    writing.execute("BEGIN")
    assert writing.execute("SELECT add(1)").fetchone() == (1,)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=MIXTURE):
        writing.execute(ddl.encode())


@pytest.mark.parametrize("ddl", ["CREATE TABLE u (k int)", "DROP TABLE t CASCADE", "CREATE INDEX ASYNC ON t (v)"])
def test_no_function_that_writes_after_ddl(writing: psycopg.Connection[Any], ddl: str) -> None:
    writing.execute("CREATE TABLE other (k int)")
    writing.execute("CREATE FUNCTION note(int) RETURNS int LANGUAGE sql AS 'INSERT INTO other VALUES ($1) RETURNING k'")
    writing.execute("BEGIN")
    writing.execute(ddl.encode())
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=MIXTURE):
        writing.execute("SELECT note(1)")
    writing.execute("ROLLBACK")
    assert writing.execute("SELECT note(1)").fetchone() == (1,)
    writing.execute("DROP FUNCTION note")


def test_a_function_that_writes_nothing_may_stand_beside_ddl(writing: psycopg.Connection[Any]) -> None:
    writing.execute("CREATE FUNCTION look() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM t'")
    with writing.transaction():
        assert writing.execute("SELECT look()").fetchone() == (0,)
        writing.execute("CREATE TABLE u (k int)")
        assert writing.execute("SELECT look()").fetchone() == (0,)
    writing.execute("DROP FUNCTION look")


def test_the_next_transaction_may_write(writing: psycopg.Connection[Any]) -> None:
    writing.execute("CREATE TABLE u (k int)")
    writing.execute("INSERT INTO u VALUES (1)")
    with writing.transaction():
        writing.execute("ALTER TABLE u ADD COLUMN v int")
    assert writing.execute("SELECT add(1)").fetchone() == (1,)
