"""The limits of connections, as clients meet them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local import changes
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from tests.local.gateway.harness import RawClient, RunningGateway, run_gateway, wait_until


class Limited:
    """A gateway whose cluster's limits the test changes."""

    def __init__(self, served: RunningGateway) -> None:
        self.served = served
        self._moved_at = 0.0

    def set(self, **values: object) -> None:
        cluster = self.served.cluster
        changing = changes.change_limits(cluster, cluster.limits.changed(values))
        asyncio.run_coroutine_threadsafe(changing, self.served.loop).result(60)

    def move(self, seconds: float) -> None:
        self.served.call(lambda: self.served.cluster.clock.move(seconds))
        self._moved_at = time.time()

    def reset(self) -> None:
        asyncio.run_coroutine_threadsafe(changes.reset(self.served.cluster), self.served.loop).result(60)

    def _await_new_tokens(self) -> None:
        """Tokens tell the second they were signed in: in the next they are of the clock that was moved."""
        time.sleep(max(0.0, int(self._moved_at) + 1.0 - time.time()))

    def connect(self, **changes: Any) -> psycopg.Connection[Any]:
        self._await_new_tokens()
        return self.served.connect(**changes)

    def refusal(self) -> tuple[str, str]:
        """The SQLSTATE and text of a login that is refused after the password."""
        self._await_new_tokens()
        with RawClient(self.served) as client:
            client.startup(user="admin", database="postgres")
            client.frame()
            client.password(self.served.token())
            error = client.error()
            assert error["S"] == "FATAL"
            client.expect_end()
            return error["C"], error["M"]


@pytest.fixture
def limited(cluster: Cluster, tmp_path: Path) -> Iterator[Limited]:
    for served in run_gateway(cluster, tmp_path):
        limited = Limited(served)
        yield limited
        limited.reset()


RATE = ("53400", "Unable to accept connection, rate exceeded.")
OPEN = ("53300", "Unable to accept connection, too many open connections.")
WAKING = ("08006", "unable to accept connection, waking up cluster, please retry later")


def closed(connection: psycopg.Connection[Any]) -> str:
    """What the client says of a connection that the server closed without a word."""
    with pytest.raises(psycopg.OperationalError) as caught:
        connection.execute("SELECT 1")
    assert caught.value.sqlstate is None
    return str(caught.value)


def test_too_many_open_connections(limited: Limited) -> None:
    limited.set(connections=2)
    first = limited.connect()
    with limited.connect():
        assert limited.refusal() == OPEN
        first.close()
        limited.served.wait_sessions(1)
        limited.connect().close()


def test_too_many_new_connections(limited: Limited) -> None:
    limited.set(connect_burst=3, connect_rate_per_s=0.01)
    for _ in range(3):
        limited.connect().close()
    assert limited.refusal() == RATE
    limited.move(100)
    limited.connect().close()


def test_who_has_no_valid_token_takes_nothing(limited: Limited) -> None:
    limited.set(connect_burst=1, connect_rate_per_s=0)
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError, match="access denied"):
            limited.connect(password="x")
    limited.connect().close()


def test_a_login_that_fails_later_is_no_open_connection(limited: Limited) -> None:
    with pytest.raises(psycopg.OperationalError, match="access denied"):
        limited.connect(user="nobody")
    wait_until(lambda: limited.served.cluster.quotas.open == 0)


def test_a_cluster_that_sleeps_is_woken_by_the_first_attempt(limited: Limited) -> None:
    limited.set(wake_s=60)
    limited.served.call(limited.served.cluster.quotas.sleep)
    assert limited.refusal() == WAKING
    assert limited.refusal() == WAKING
    limited.move(60)
    limited.connect().close()


def test_a_connection_ends_at_the_end_of_its_time_without_a_word(limited: Limited) -> None:
    with limited.connect() as old:
        limited.move(3_000)
        with limited.connect() as young:
            limited.move(601)
            closed(old)
            assert young.execute("SELECT 1").fetchone() == (1,)
    limited.served.wait_sessions(0)


def test_a_connection_ends_by_itself_when_its_time_is_short(limited: Limited) -> None:
    limited.set(session_s=0.2)
    with limited.connect():
        limited.served.wait_sessions(0)


def test_a_running_transaction_may_end(limited: Limited) -> None:
    limited.set(session_s=100)
    with limited.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1")
        limited.move(150)
        connection.execute("SELECT 1")
        connection.execute("COMMIT")
        closed(connection)


def test_a_transaction_that_failed_is_a_transaction(limited: Limited) -> None:
    limited.set(session_s=100)
    with limited.connect() as connection:
        connection.execute("BEGIN")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1/0")
        limited.move(150)
        connection.execute("ROLLBACK")
        closed(connection)


def test_a_running_transaction_has_its_time_of_grace(limited: Limited) -> None:
    limited.set(session_s=100, session_grace_s=100)
    with limited.connect() as connection:
        connection.execute("BEGIN")
        limited.move(150)
        connection.execute("SELECT 1")
        limited.move(51)
        closed(connection)
    limited.served.wait_sessions(0)


def test_a_statement_that_runs_at_the_end_is_answered(limited: Limited) -> None:
    with RawClient(limited.served).logged_in() as client:
        client.send(frames.message(frames.QUERY, b"SELECT pg_sleep(0.3)\0"))
        wait_until(lambda: any(session.working for session in limited.served.gateway._sessions))
        limited.move(3_700)
        assert [kind for kind, _ in client.until_ready()] == ["T", "D", "C", "Z"]
        assert client.expect_end() == b""


def test_more_time_is_given_to_those_who_are_there(limited: Limited) -> None:
    limited.set(session_s=100)
    with limited.connect() as connection:
        connection.execute("BEGIN")
        limited.move(150)
        limited.set(session_s=10_000)
        connection.execute("COMMIT")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_clock_that_is_set_back_gives_nobody_more_time(limited: Limited) -> None:
    limited.move(50_000)
    with limited.connect() as connection:
        limited.served.call(limited.served.cluster.clock.reset)
        limited.move(3_601)
        closed(connection)


def test_a_message_may_not_be_longer_than_its_limit(limited: Limited) -> None:
    limited.set(message_bytes=1_000)
    with limited.connect() as connection:
        connection.execute("SELECT '" + 900 * "x" + "'")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT '" + 1_100 * "x" + "'")
