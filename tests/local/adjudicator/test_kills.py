"""Clients and backends that die: nothing is left of them, and what was acknowledged is there."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
import uuid
from typing import Any, Final

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from tests.local.adjudicator.bank import ACCOUNTS, TABLES, assert_books, open_accounts, transfer, transfers
from tests.local.adjudicator.breaking import again, assert_ends, backends, break_connection
from tests.local.adjudicator.racing import Connect, Make, Racer, assert_free, race, rows
from tests.local.engines import connect as connect_to

CONFLICT: Final = "change conflicts with another transaction (OC000)"


@pytest.fixture
def bank(connect: Connect, make: Make) -> None:
    make(TABLES)
    open_accounts(connect)


@pytest.mark.usefixtures("bank")
def test_clients_that_die_anywhere_leave_nothing_half_done(connect: Connect) -> None:
    acknowledged: set[str] = set()
    unknown: set[str] = set()
    stop = threading.Event()
    victims = 4

    def victim(racer: Racer) -> None:
        own = random.Random(f"victim {racer.number}")
        for _ in range(12):
            connection = connect()
            killer = threading.Timer(own.uniform(0, 0.06), break_connection, [connection])
            killer.start()
            try:
                for _ in itertools.count():
                    debit, credit = own.sample(range(ACCOUNTS), 2)
                    identity = str(uuid.UUID(int=own.getrandbits(128)))
                    unknown.add(identity)
                    connection.execute("BEGIN")
                    try:
                        transfer(connection, identity, debit, credit, own.randint(1, 50))
                        connection.execute("COMMIT")
                        acknowledged.add(identity)
                    except psycopg.errors.SerializationFailure:
                        unknown.discard(identity)
                        connection.execute("ROLLBACK")
            except psycopg.OperationalError:
                killer.join()
                connection.close()
        finished.append(racer.number)
        if len(finished) == victims:
            stop.set()

    finished: list[int] = []
    race(connect, *[victim] * victims, *[transfers(acknowledged, stop=stop)] * 4)
    assert_books(connect, acknowledged, unknown=unknown)
    assert_free(connect, "r_account.balance", "r_ledger.amount")


def test_a_client_that_dies_in_a_contested_commit_has_committed_or_not(connect: Connect, make: Make) -> None:
    make("CREATE TABLE k_row (k int PRIMARY KEY, v int)")
    with connect() as connection:
        connection.execute("INSERT INTO k_row VALUES (1, 0), (2, 0)")
    r = random.Random("contested")
    with connect() as survivor:
        for value in range(1, 41):
            victim = connect()
            for connection, key in ((survivor, value), (victim, -value)):
                connection.execute("BEGIN")
                connection.execute("UPDATE k_row SET v = %s", (key,))
            victim.pgconn.send_query(b"COMMIT")
            time.sleep(r.choice((0, 0, 0.0005, 0.002)))
            break_connection(victim)
            victim.close()
            try:
                survivor.execute("COMMIT")
                won = value
            except psycopg.errors.SerializationFailure:
                won = -value
            found = rows(connect, "SELECT DISTINCT v FROM k_row")
            # The victim's COMMIT may have reached the engine, or not; but then it took effect wholly, and once.
            assert found == [(won,)], value
    assert_free(connect, "k_row.v")


def test_a_client_that_dies_in_a_long_write_holds_nobody(connect: Connect, make: Make) -> None:
    make("CREATE TABLE k_many (k int PRIMARY KEY, v int)")
    with connect() as connection:
        connection.execute("INSERT INTO k_many SELECT g, 0 FROM generate_series(1, 2000) g")
    for _ in range(5):
        victim = connect()
        victim.execute("BEGIN")
        victim.pgconn.send_query(b"UPDATE k_many SET v = (SELECT sum(x) FROM generate_series(1, 3000) x) + k % 7")
        time.sleep(0.02)
        break_connection(victim)
        victim.close()
        with connect() as connection:
            began = time.monotonic()
            assert connection.execute("UPDATE k_many SET v = v + 1 WHERE k = 1").rowcount == 1
            assert time.monotonic() - began < 5
    assert rows(connect, "SELECT k, v FROM k_many WHERE v <> 0") == [(1, 5)]
    assert_free(connect, "k_many.v")


def conflict(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> str | None:
    """Have two transactions write the same row; give what the second to commit is told."""
    for connection in (one, other):
        connection.execute("BEGIN")
        assert connection.execute("UPDATE k_crash SET v = v + 1 WHERE k = 1").rowcount == 1
    one.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure) as lost:
        other.execute("COMMIT")
    return lost.value.diag.message_primary


@pytest.mark.skipif(sys.platform != "linux", reason="finds PostgreSQL's processes in /proc")
def test_conflicts_are_found_after_a_killed_backend() -> None:
    with Engine.start_or_attach() as engine:
        one, other = connect_to(engine), connect_to(engine)
        one.execute("CREATE TABLE k_crash (k int PRIMARY KEY, v int)")
        until_told(other)
        one.execute("INSERT INTO k_crash VALUES (1, 0), (2, 0)")
        assert conflict(one, other) == CONFLICT
        one.execute("BEGIN")
        one.execute("UPDATE k_crash SET v = 1000")
        other.execute("BEGIN")
        other.execute("UPDATE k_crash SET v = 1000")
        os.kill(backends(engine)[0], signal.SIGKILL)
        for connection in (one, other):
            assert_ends(connection)
        one, other = (again(engine) for _ in range(2))
        with one, other:
            assert one.execute("SELECT k, v FROM k_crash ORDER BY k").fetchall() == [(1, 1), (2, 0)]
            assert conflict(one, other) == CONFLICT
            assert one.execute("UPDATE k_crash SET v = 5").rowcount == 2


def until_told(connection: psycopg.Connection[Any]) -> None:
    """Be told of a change of the catalog."""
    with contextlib.suppress(psycopg.errors.SerializationFailure):
        connection.execute("SELECT 1")
