"""What the engine's documentation says that it does otherwise than DSQL when transactions meet: it is so, and no worse.

A test that fails because the engine has become better goes, with its line in the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.local.adjudicator.racing import Connect, Connection, Make


@pytest.fixture
def family(connect: Connect, make: Make) -> Iterator[tuple[Connection, Connection, Connection]]:
    """Three sessions, a parent with two unique columns, its child, and a table without a key."""
    make(
        "CREATE TABLE d_parent (k int PRIMARY KEY, code int UNIQUE, note int);"
        "CREATE TABLE d_child (k int PRIMARY KEY, p int REFERENCES d_parent (k));"
        "CREATE TABLE d_heap (n int)"
    )
    with connect() as one, connect() as other, connect() as third:
        one.execute("INSERT INTO d_parent VALUES (1, 11, 0), (2, 12, 0)")
        one.execute("INSERT INTO d_heap VALUES (1)")
        yield one, other, third


def test_a_key_share_of_a_row_without_a_key_is_forgotten(family: tuple[Connection, Connection, Connection]) -> None:
    one, other, _ = family
    one.execute("BEGIN")
    other.execute("SELECT n FROM d_heap FOR KEY SHARE")
    one.execute("DELETE FROM d_heap")
    one.execute("COMMIT")


def test_the_later_committer_loses(family: tuple[Connection, Connection, Connection]) -> None:
    one, other, _ = family
    for connection in (one, other):
        connection.execute("BEGIN")
        connection.execute("UPDATE d_parent SET note = note + 1")
    other.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        one.execute("COMMIT")


def test_rows_of_a_contested_transaction_have_no_system_columns(
    family: tuple[Connection, Connection, Connection],
) -> None:
    one, other, _ = family
    one.execute("BEGIN")
    other.execute("UPDATE d_parent SET note = 1")
    one.execute("UPDATE d_parent SET note = 2")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        one.execute("SELECT xmin FROM d_parent")
    one.execute("ROLLBACK")
