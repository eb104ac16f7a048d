"""The same limits where a transaction goes on in a sandbox, is evicted, or is run again at its COMMIT."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from tests.local.engines import connect

Connection = psycopg.Connection[Any]

MANY = "INSERT INTO m SELECT g, g FROM generate_series({}, {}) AS g"


@pytest.fixture
def rival(engine: Engine) -> Iterator[Connection]:
    with connect(engine) as rival:
        yield rival


@pytest.fixture
def ours(connection: Connection) -> Connection:
    """A connection to a table of two rows, and empty ones."""
    connection.execute("CREATE TABLE c (k int PRIMARY KEY, v int)")
    connection.execute("CREATE TABLE m (k int PRIMARY KEY, v int)")
    connection.execute("CREATE TABLE child (k int PRIMARY KEY, m int REFERENCES m ON DELETE CASCADE)")
    connection.execute("CREATE TABLE b (k int PRIMARY KEY, d bytea)")
    connection.execute("CREATE TABLE w (k text PRIMARY KEY, d text)")
    connection.execute("INSERT INTO c VALUES (1, 0), (2, 0)")
    return connection


def contest(ours: Connection, rival: Connection) -> None:
    """Have both write a row, neither of them being at its end."""
    for connection in (rival, ours):
        connection.execute("BEGIN")
        connection.execute("UPDATE c SET v = v + 1 WHERE k = 1")


def insert(connection: Connection, first: int, last: int) -> None:
    connection.execute(MANY.format(first, last).encode())


def crosses(connection: Connection, sql: str) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=r"^transaction row limit exceeded$"):
        connection.execute(sql.encode())


def count(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM m").fetchone()
    assert row is not None
    return int(row[0])


def test_in_the_sandbox_the_limit_is_the_same(ours: Connection, rival: Connection) -> None:
    contest(ours, rival)
    insert(ours, 1, 2999)
    crosses(ours, "INSERT INTO m VALUES (3000, 0)")
    assert ours.execute("COMMIT").statusmessage == "ROLLBACK"


def test_as_many_as_allowed_commit_after_the_rival_gave_up(ours: Connection, rival: Connection) -> None:
    contest(ours, rival)
    insert(ours, 1, 2999)
    rival.execute("ROLLBACK")
    ours.execute("COMMIT")
    assert count(ours) == 2999


def test_what_was_written_before_the_contest_counts_once(ours: Connection, rival: Connection) -> None:
    rival.execute("BEGIN")
    rival.execute("UPDATE c SET v = 1 WHERE k = 1")
    ours.execute("BEGIN")
    insert(ours, 1, 2000)
    ours.execute("UPDATE c SET v = 2 WHERE k = 1")
    insert(ours, 2001, 2999)
    rival.execute("ROLLBACK")
    ours.execute("COMMIT")
    assert count(ours) == 2999


def test_updates_and_deletes_in_the_sandbox_count(ours: Connection, rival: Connection) -> None:
    insert(ours, 1, 1000)
    contest(ours, rival)
    ours.execute("UPDATE m SET v = 0")
    ours.execute("UPDATE m SET v = 1")
    ours.execute("DELETE FROM m WHERE k < 1000")
    crosses(ours, "DELETE FROM m")
    ours.execute("ROLLBACK")
    assert count(ours) == 1000


def test_upserts_in_the_sandbox_count_what_they_write(ours: Connection, rival: Connection) -> None:
    insert(ours, 1, 1500)
    contest(ours, rival)
    ours.execute("INSERT INTO m SELECT g, 0 FROM generate_series(1, 1999) g ON CONFLICT (k) DO UPDATE SET v = 0")
    ours.execute("INSERT INTO m SELECT g, 0 FROM generate_series(1, 2999) g ON CONFLICT (k) DO NOTHING")
    crosses(ours, "UPDATE m SET v = 1 WHERE k = 1")


def test_cascades_in_the_sandbox_count(ours: Connection, rival: Connection) -> None:
    insert(ours, 1, 2)
    ours.execute("INSERT INTO child SELECT g, 1 FROM generate_series(1, 2998) g")
    ours.execute("INSERT INTO child VALUES (2999, 2)")
    contest(ours, rival)
    ours.execute("DELETE FROM m WHERE k = 1")
    crosses(ours, "DELETE FROM m WHERE k = 2")


def test_an_evicted_transaction_has_written_what_it_had(ours: Connection, rival: Connection) -> None:
    ours.execute("BEGIN")
    insert(ours, 1, 2000)
    ours.execute("UPDATE c SET v = 1 WHERE k = 1")
    rival.execute("UPDATE c SET v = 2 WHERE k = 1")
    insert(ours, 2001, 2999)
    crosses(ours, "INSERT INTO m VALUES (3000, 0)")


def test_rows_that_are_locked_do_not_count(ours: Connection, rival: Connection) -> None:
    insert(ours, 1, 3000)
    ours.execute("BEGIN")
    ours.execute("SELECT * FROM m FOR UPDATE")
    ours.execute("UPDATE m SET v = 0")
    crosses(ours, "UPDATE c SET v = 0 WHERE k = 2")
    ours.execute("ROLLBACK")
    contest(ours, rival)
    ours.execute("SELECT * FROM m FOR UPDATE")
    ours.execute("UPDATE m SET v = 0 WHERE k > 1")
    crosses(ours, "UPDATE m SET v = 0 WHERE k = 1")


def test_too_many_bytes_fail_the_commit_as_such(ours: Connection, rival: Connection) -> None:
    contest(ours, rival)
    for k in range(11):
        ours.execute("INSERT INTO b VALUES (%s, %s)", (k, os.urandom(1024 * 1024)))
    rival.execute("ROLLBACK")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size limit 10mb exceeded"):
        ours.execute("COMMIT")
    assert ours.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_bytes_of_what_is_run_again_count_once(ours: Connection, rival: Connection) -> None:
    ours.execute("BEGIN")
    for k in range(6):
        ours.execute("INSERT INTO b VALUES (%s, %s)", (k, os.urandom(1024 * 1024)))
    rival.execute("BEGIN")
    rival.execute("UPDATE c SET v = 2 WHERE k = 1")
    ours.execute("UPDATE c SET v = 1 WHERE k = 1")
    rival.execute("ROLLBACK")
    ours.execute("INSERT INTO b VALUES (%s, %s)", (7, os.urandom(1024 * 1024)))
    ours.execute("COMMIT")
    assert ours.execute("SELECT count(*) FROM b").fetchall() == [(7,)]


def test_values_and_keys_are_looked_at_in_the_sandbox_too(ours: Connection, rival: Connection) -> None:
    for sql, message in (
        ("INSERT INTO w VALUES (repeat('k', 1982))", "key size too large"),
        ("INSERT INTO w VALUES ('k', %s)", "datatype limit greater than 1048576 bytes not supported for text"),
    ):
        contest(ours, rival)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"^{message}$"):
            ours.execute(sql.encode(), (os.urandom(600_000).hex(),) if "%s" in sql else None)
        for connection in (ours, rival):
            connection.execute("ROLLBACK")


@pytest.mark.parametrize(
    "setting",
    [
        "RESET ALL",
        "SET search_path = public",
        "RESET search_path",
        "SET LOCAL search_path = public, pg_catalog",
        "SELECT set_config('search_path', 'public', false)",
    ],
)
def test_no_setting_leads_out_of_the_sandbox(ours: Connection, rival: Connection, setting: str) -> None:
    contest(ours, rival)
    insert(ours, 1, 2000)
    ours.execute(setting.encode())
    assert ours.execute("SELECT v FROM c WHERE k = 1").fetchall() == [(1,)]
    insert(ours, 2001, 2999)
    crosses(ours, "INSERT INTO m VALUES (3000, 0)")


@pytest.mark.parametrize("setting", ["RESET ALL", "SET search_path = public"])
def test_no_setting_leads_out_of_the_sandbox_of_an_evicted_transaction(
    ours: Connection, rival: Connection, setting: str
) -> None:
    ours.execute("BEGIN")
    ours.execute("UPDATE c SET v = 1 WHERE k = 1")
    ours.execute(setting.encode())
    insert(ours, 1, 2000)
    rival.execute("UPDATE c SET v = 2 WHERE k = 1")
    assert ours.execute("SELECT v FROM c WHERE k = 1").fetchall() == [(1,)]
    insert(ours, 2001, 2999)
    crosses(ours, "INSERT INTO m VALUES (3000, 0)")
