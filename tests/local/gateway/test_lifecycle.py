"""How connections and gateways end, and what they leave behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from tests.local.gateway.harness import RawClient, RunningGateway, direct, run_gateway, wait_until


@pytest.fixture
def own(cluster: Cluster, tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway of the test's own."""
    yield from run_gateway(cluster, tmp_path)


@pytest.fixture
def impatient(cluster: Cluster, tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that gives its clients little time to log in."""
    yield from run_gateway(cluster, tmp_path, handshake_timeout_s=0.5)


def backends(cluster: Cluster, application: str) -> list[int]:
    """The process ids of PostgreSQL's backends of an application."""
    with direct(cluster) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [application]
        ).fetchall()
    return [pid for (pid,) in rows]


def test_a_client_that_leaves_in_a_transaction_takes_its_backend_along(own: RunningGateway) -> None:
    with RawClient(own).logged_in(application_name="leaves") as client:
        client.send(frames.message(frames.QUERY, b"BEGIN\0") + frames.TERMINATE_MESSAGE)
        client.expect_end()
    own.wait_sessions(0)
    wait_until(lambda: not backends(own.cluster, "leaves"))


def test_a_client_that_leaves_leaves_its_backend_to_the_next(own: RunningGateway) -> None:
    pids = []
    for _ in range(3):
        with own.connect(application_name="in turn") as connection:
            connection.execute("SELECT 1")
            pids += backends(own.cluster, "in turn")
        own.wait_sessions(0)
    assert len(pids) == 3
    assert len(set(pids)) == 1


def test_a_client_that_dies_in_a_statement_ends_it(own: RunningGateway) -> None:
    client = RawClient(own).logged_in(application_name="dies")
    client.send(frames.message(frames.QUERY, b"SELECT pg_sleep(600)\0"))
    wait_until(lambda: len(backends(own.cluster, "dies")) == 1)
    os.close(client.socket.detach())
    own.wait_sessions(0)
    wait_until(lambda: not backends(own.cluster, "dies"))


def test_a_backend_that_dies_is_told_to_its_client(own: RunningGateway) -> None:
    with RawClient(own).logged_in(application_name="terminated") as client:
        client.send(frames.message(frames.QUERY, b"BEGIN\0"))
        client.until_ready()
        with direct(own.cluster) as superuser:
            superuser.execute("SELECT pg_terminate_backend(%s)", [backends(own.cluster, "terminated")[0]])
        error = client.error()
        assert (error["S"], error["C"]) == ("FATAL", "57P01")
        assert client.expect_end() == b""
    own.wait_sessions(0)


def test_closing_tells_every_client(cluster: Cluster, tmp_path: Path) -> None:
    running = run_gateway(cluster, tmp_path)
    served = next(running)
    idle = RawClient(served).logged_in(application_name="closing")
    busy = RawClient(served).logged_in(application_name="closing")
    busy.send(frames.message(frames.QUERY, b"SELECT pg_sleep(600)\0"))
    with pytest.raises(StopIteration):
        next(running)
    for client in (idle, busy):
        with client:
            assert client.error()["C"] == "57P01"
            client.expect_end()
    wait_until(lambda: not backends(cluster, "closing"))


def test_a_statement_whose_cancellation_came_too_early_ends_all_the_same(cluster: Cluster) -> None:
    # Straight to PostgreSQL, because there nobody cancels anything.
    connection = psycopg.connect(
        host=str(Path(cluster.socket_path).parent), user="admin", dbname="postgres", application_name="forsaken"
    )
    connection.pgconn.send_query(b"SELECT pg_sleep(600)")
    connection.pgconn.flush()
    wait_until(lambda: len(backends(cluster, "forsaken")) == 1)
    connection.close()
    wait_until(lambda: not backends(cluster, "forsaken"))


def test_closing_ends_logins_that_are_under_way(cluster: Cluster, tmp_path: Path) -> None:
    running = run_gateway(cluster, tmp_path)
    served = next(running)
    with RawClient(served) as client:
        client.startup(user="admin", database="postgres")
        assert client.frame()[0] == "R"
        with pytest.raises(StopIteration):
            next(running)
        assert client.expect_end() == b""


def test_nobody_can_connect_after_closing(cluster: Cluster, tmp_path: Path) -> None:
    running = run_gateway(cluster, tmp_path)
    port = next(running).port
    with pytest.raises(StopIteration):
        next(running)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


@pytest.mark.parametrize("first", [b"", b"\0\0", b"\x16", b"\0\0\0\x08\x04\xd2\x16\x2f"])
def test_a_client_that_says_too_little_is_dropped(impatient: RunningGateway, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), 10) as raw:
        raw.sendall(first)
        answer = b"".join(iter(lambda: raw.recv(100), b""))
    assert answer in (b"", b"S")


def test_a_client_that_sends_no_password_is_dropped(cluster: Cluster, tmp_path: Path) -> None:
    # Time enough to be asked for the password, also where TLS takes long.
    for served in run_gateway(cluster, tmp_path, handshake_timeout_s=3.0):
        with RawClient(served) as client:
            client.startup(user="admin", database="postgres")
            assert client.frame()[0] == "R"
            assert client.expect_end() == b""


def test_a_slow_reader_holds_postgresql_back(own: RunningGateway) -> None:
    with RawClient(own).logged_in() as client:
        before = memory()
        client.send(frames.message(frames.QUERY, b"SELECT repeat('x', 10000) FROM generate_series(1, 20000)\0"))
        # The client reads nothing: 200 MB must wait in PostgreSQL. Another connection's answers show the time pass.
        with own.connect() as other:
            for _ in range(300):
                other.execute("SELECT 1")
        grown = memory() - before
        rows = sum(kind == "D" for kind, _ in client.until_ready())
    assert rows == 20_000
    assert grown < 30_000_000


def test_a_slow_postgresql_holds_the_client_back(own: RunningGateway) -> None:
    with own.connect() as owner:
        owner.execute("CREATE TABLE held (a text)")
    blocker = direct(own.cluster)
    try:
        blocker.execute("BEGIN")
        blocker.execute("LOCK TABLE held")
        with RawClient(own).logged_in() as client:
            client.socket.settimeout(1)
            client.send(frames.message(frames.QUERY, b"INSERT INTO held VALUES ('x')\0"))
            flood = frames.message(frames.FLUSH, b"") * 10_000_000
            before = memory()
            with pytest.raises(TimeoutError):
                client.send(flood)
            assert memory() - before < 30_000_000
    finally:
        blocker.close()
        with own.connect() as owner:
            owner.execute("DROP TABLE held")


def memory() -> int:
    """Resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_connections_at_once(own: RunningGateway) -> None:
    token = own.token()
    held: list[psycopg.Connection[Any]] = []
    with ThreadPoolExecutor(50) as pool:
        held += pool.map(lambda _: own.connect(password=token, connect_timeout=60), range(200))
    try:
        own.wait_sessions(200)
    finally:
        for connection in held:
            connection.close()
    own.wait_sessions(0)


def test_nothing_is_left_in_the_loop_after_many_bad_clients(own: RunningGateway) -> None:
    def tasks() -> int:
        return len(asyncio.all_tasks(own.loop))

    before = own.call(tasks)
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", own.port), 5) as raw:
            raw.sendall(b"\0\0\0\x08\x04\xd2\x16\x2fnonsense")
    with own.connect():
        pass
    wait_until(lambda: own.call(tasks) <= before)
