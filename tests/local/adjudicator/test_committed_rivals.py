"""Rivals that have committed, and left nothing in PostgreSQL to be known by: they are in the way all the same."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.local.adjudicator.racing import Connect, Connection, Make


@pytest.fixture
def sessions(connect: Connect, make: Make) -> Iterator[tuple[Connection, Connection, Connection]]:
    """Three sessions; parents with two unique columns, children of each kind."""
    make(
        "CREATE TABLE c_parent (k int PRIMARY KEY, code int UNIQUE, note int);"
        "CREATE TABLE c_child (k int PRIMARY KEY, p int REFERENCES c_parent (k));"
        "CREATE TABLE c_orphan (k int PRIMARY KEY, p int REFERENCES c_parent (k) ON DELETE SET NULL)"
    )
    with connect() as one, connect() as other, connect() as third:
        one.execute("INSERT INTO c_parent VALUES (1, 11, 0), (2, 12, 0), (3, 13, 0)")
        one.execute("INSERT INTO c_child VALUES (1, 3)")
        one.execute("INSERT INTO c_orphan VALUES (1, 2)")
        yield one, other, third


def loses(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.SerializationFailure, match="OC000"):
        connection.execute("COMMIT")


def test_a_child_holds_every_unique_column_of_its_parent(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    one.execute("UPDATE c_parent SET code = NULL WHERE k = 1")
    other.execute("INSERT INTO c_child VALUES (5, 1)")
    loses(one)


def test_a_changed_unique_column_is_in_the_way_of_a_child(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    one.execute("INSERT INTO c_child VALUES (5, 1)")
    other.execute("UPDATE c_parent SET code = NULL WHERE k = 1")
    loses(one)


def test_a_row_that_is_read_for_update_beside_a_rival_is_held_by_a_key_share(sessions: tuple[Connection, ...]) -> None:
    one, other, third = sessions
    third.execute("BEGIN")
    third.execute("UPDATE c_parent SET note = 1 WHERE k = 2")
    one.execute("BEGIN")
    one.execute("UPDATE c_parent SET note = 2 WHERE k = 2")
    other.execute("SELECT k FROM c_parent WHERE k = 1 FOR KEY SHARE")
    assert one.execute("SELECT k, note FROM c_parent WHERE k = 1 FOR UPDATE").fetchall() == [(1, 0)]
    third.execute("ROLLBACK")
    loses(one)


def test_a_key_that_came_and_went_is_in_the_way_of_one_that_does_so_too(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    other.execute("INSERT INTO c_parent VALUES (9, NULL, 0)")
    other.execute("DELETE FROM c_parent WHERE k = 9")
    assert one.execute("INSERT INTO c_parent VALUES (9, NULL, 0)").rowcount == 1
    assert one.execute("DELETE FROM c_parent WHERE k = 9").rowcount == 1
    loses(one)


def test_a_row_that_is_gone_is_not_inserted_again_by_an_upsert(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    other.execute("DELETE FROM c_parent WHERE k = 1")
    sql = "INSERT INTO c_parent VALUES (1, 11, 1) ON CONFLICT (k) DO UPDATE SET note = c_parent.note + 5 RETURNING note"
    assert one.execute(sql).fetchall() == [(5,)]
    loses(one)


def test_a_child_that_left_keeps_its_parent_from_older_transactions(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    other.execute("UPDATE c_child SET p = 1 WHERE k = 1")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="still referenced"):
        one.execute("DELETE FROM c_parent WHERE k = 3")
    one.execute("ROLLBACK")


def test_what_a_cascade_would_have_changed_is_in_the_way(sessions: tuple[Connection, ...]) -> None:
    one, other, _ = sessions
    one.execute("BEGIN")
    other.execute("UPDATE c_orphan SET p = 1 WHERE k = 1")
    assert one.execute("DELETE FROM c_parent WHERE k = 2").rowcount == 1
    assert one.execute("SELECT p FROM c_orphan").fetchall() == [(None,)]
    loses(one)


def test_other_updates_of_a_parent_are_free(sessions: tuple[Connection, ...]) -> None:
    one, other, third = sessions
    one.execute("BEGIN")
    one.execute("UPDATE c_parent SET note = 1 WHERE k = 1")
    other.execute("INSERT INTO c_child VALUES (5, 1)")
    third.execute("DELETE FROM c_child WHERE k = 1")
    one.execute("COMMIT")
