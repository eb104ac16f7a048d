"""A session outlives its connections, and repeats only what repeating can cure."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from pytest_dsql.errors import ConnectionFailed
from pytest_dsql.workloads import sessions
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.sessions import Session, Stopped


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_FIRST_BACKOFF_S", 0.0)


def test_a_connection_lost_between_two_units_is_replaced(connect: Connect) -> None:
    with Session(connect) as session, connect() as killer:
        pid = session.query("SELECT pg_backend_pid()")[0][0]
        killer.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        assert session.query("SELECT 1") == [(1,)]
        assert (session.connections, session.retries) == (2, 1)


def test_a_connection_is_replaced_before_its_hour(connect: Connect) -> None:
    with Session(connect, max_age_s=0.0) as session:
        first, second = (session.query("SELECT pg_backend_pid()") for _ in range(2))
        assert first != second
        assert session.retries == 0


@pytest.mark.parametrize(
    ("sqlstate", "message"),
    [
        ("40001", "change conflicts with another transaction (OC000)"),
        ("40001", "schema has been updated by another transaction (OC001)"),
        ("40P01", "deadlock detected"),
        ("XX000", "server unavailable"),
    ],
)
def test_conflicts_and_outages_are_repeated(connect: Connect, sqlstate: str, message: str) -> None:
    attempts = []

    def work(connection: psycopg.Connection[Any]) -> int:
        attempts.append(1)
        with connection.transaction():
            if len(attempts) < 3:
                raise_in_sql = f"DO $$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '{sqlstate}'; END $$"
                connection.execute(raise_in_sql)
        return len(attempts)

    with Session(connect) as session:
        assert session.run(work) == 3
        assert (session.connections, session.retries) == (1, 2)


def test_a_session_left_inside_a_transaction_is_not_used_again(connect: Connect) -> None:
    pids = []

    def work(connection: psycopg.Connection[Any]) -> None:
        pids.append(connection.info.backend_pid)
        connection.execute("BEGIN")
        if len(pids) == 1:
            connection.execute("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$")

    with Session(connect) as session:
        session.run(work)
    assert len(set(pids)) == 2


@pytest.mark.parametrize("statement", ["SELECT nonsense", "SELECT 1/0", "SELECT 'x'::int"])
def test_a_fault_of_the_statement_is_raised_at_once(connect: Connect, statement: str) -> None:
    with Session(connect) as session:
        with pytest.raises(psycopg.Error):
            session.execute(statement)
        assert session.retries == 0


def test_a_fault_of_the_caller_is_raised_at_once(connect: Connect) -> None:
    with Session(connect) as session:
        with pytest.raises(psycopg.ProgrammingError):
            session.query("SELECT %s", ())
        assert session.retries == 0


def test_a_refused_connection_is_asked_for_again(connect: Connect) -> None:
    refusals = [
        ConnectionFailed("Unable to accept connection, rate exceeded.", phase="startup", sqlstate="53400"),
        ConnectionFailed("the network is unreachable", phase="tcp"),
        psycopg.OperationalError("connection refused"),
    ]

    def flaky() -> psycopg.Connection[Any]:
        if refusals:
            raise refusals.pop()
        return connect()

    with Session(flaky) as session:
        assert session.query("SELECT 1") == [(1,)]
        assert session.retries == 3


@pytest.mark.parametrize(
    "refusal",
    [
        ConnectionFailed("unable to accept connection, access denied", phase="authentication", sqlstate="08006"),
        psycopg.OperationalError('FATAL:  password authentication failed for user "admin"'),
    ],
)
def test_refused_credentials_are_not_tried_again(refusal: Exception) -> None:
    calls = []

    def refuse() -> psycopg.Connection[Any]:
        calls.append(1)
        raise refusal

    with Session(refuse) as session, pytest.raises(type(refusal)):
        session.query("SELECT 1")
    assert len(calls) == 1


def test_an_outage_that_lasts_is_raised_in_the_end() -> None:
    calls = []

    def unreachable() -> psycopg.Connection[Any]:
        calls.append(1)
        raise psycopg.OperationalError("connection refused")

    with Session(unreachable) as session, pytest.raises(psycopg.OperationalError, match="connection refused"):
        session.query("SELECT 1")
    assert len(calls) == 12


def test_waiting_for_the_next_attempt_ends_when_told_to_stop() -> None:
    stop = threading.Event()

    def unreachable() -> psycopg.Connection[Any]:
        stop.set()
        raise psycopg.OperationalError("connection refused")

    with Session(unreachable, stop=stop) as session, pytest.raises(Stopped):
        session.query("SELECT 1")
