"""Pools: every connection with a current token, only live ones handed out, and a reason when there is none."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from pytest_dsql.connect import pool as pool_module
from pytest_dsql.connect import token as token_module
from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth
from pytest_dsql.connect.pool import AsyncDsqlPool, DsqlPool, open_async_pool, open_pool, unopened_async_pool
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, CredentialsError
from tests.connect.conftest import listening, refusing
from tests.plain_postgres import PlainPostgres


class Handle:
    """Both kinds of pool behind one face, so that each case runs over each kind."""

    def __init__(self, run: Callable[[Any], Any], pool: DsqlPool | AsyncDsqlPool) -> None:
        self.run = run
        self.pool = pool

    def take(self, timeout: float | None = None) -> Any:
        return self.run(self.pool.getconn(timeout))

    def give_back(self, connection: Any) -> None:
        self.run(self.pool.putconn(connection))

    def pid(self) -> int:
        """Take a connection, ask it who serves it, and give it back."""
        connection = self.take()
        try:
            return int(self.execute(connection, "SELECT pg_backend_pid()"))
        finally:
            self.give_back(connection)

    def execute(self, connection: Any, sql: str) -> Any:
        cursor = self.run(connection.execute(sql))
        row = self.run(cursor.fetchone())
        return row[0]


class Opener:
    """Opens pools of one kind; they are closed at the end."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loop = asyncio.new_event_loop()
        self._open: list[DsqlPool | AsyncDsqlPool] = []

    def run(self, result: Any) -> Any:
        if not isinstance(result, Awaitable):
            return result

        async def awaited() -> Any:
            return await result

        return self._loop.run_until_complete(awaited())

    def __call__(self, endpoint: Endpoint, tokens: TokenSource | None = None, **options: Any) -> Handle:
        opened = open_pool if self.kind == "sync" else open_async_pool
        pool = self.run(opened(endpoint, tokens or TokenSource(endpoint), **options))
        self._open.append(pool)
        return Handle(self.run, pool)

    def close_pools(self) -> None:
        for pool in self._open:
            self.run(pool.close())
        self._open.clear()

    def close(self) -> None:
        self.close_pools()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def opened(request: pytest.FixtureRequest) -> Iterator[Opener]:
    opener = Opener(request.param)
    yield opener
    opener.close()


def terminate(server: PlainPostgres) -> None:
    """End all sessions of the server, from its side."""
    with psycopg.connect(**server.conninfo(), autocommit=True) as superuser:  # type: ignore[arg-type]  # strings all
        superuser.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


class TestHandsOut:
    def test_connections_that_work(self, opened: Opener, tls_endpoint: Endpoint) -> None:
        pool = opened(tls_endpoint, min_size=2)
        connection = pool.take()
        assert connection.pgconn.ssl_in_use
        assert connection.autocommit
        assert pool.execute(connection, "SELECT 41 + 1") == 42
        pool.give_back(connection)

    def test_as_many_as_asked_for(self, opened: Opener, endpoint: Endpoint) -> None:
        pool = opened(endpoint, min_size=3)
        stats = pool.pool.get_stats()
        assert stats["pool_available"] == 3
        assert stats["connections_num"] == 3

    def test_none_in_advance_when_none_is_asked_for(self, opened: Opener, endpoint: Endpoint) -> None:
        pool = opened(endpoint, min_size=0, max_size=2)
        assert pool.pool.get_stats()["pool_available"] == 0
        assert pool.pid()

    def test_no_dead_connection_from_an_idle_pool(
        self, opened: Opener, endpoint: Endpoint, server: PlainPostgres
    ) -> None:
        pool = opened(endpoint, min_size=8)
        started = time.monotonic()
        for _ in range(2):
            terminate(server)
            assert [bool(pool.pid()) for _ in range(10)] == [True] * 10
        # psycopg_pool alone would try the dead ones one by one, doubling its pauses: more than a minute.
        assert time.monotonic() - started < 20

    def test_no_connection_whose_network_swallows_its_packets(
        self, opened: Opener, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool_module, "_LIVENESS_TIMEOUT_S", 0.3)
        with swallowing(endpoint.port) as (port, swallow):
            pool = opened(replace(endpoint, port=port), min_size=6)
            swallow()
            started = time.monotonic()
            assert pool.pid()
            assert time.monotonic() - started < 6 * 0.3 + 5
            opened.close_pools()

    def test_no_connection_that_is_about_to_be_cut_off(self, opened: Opener, endpoint: Endpoint) -> None:
        pool = opened(endpoint, min_size=1)
        connection = pool.take()
        first = pool.execute(connection, "SELECT pg_backend_pid()")
        pool.give_back(connection)
        connection.retire_at = time.monotonic()
        assert pool.pid() != first

    def test_connections_in_autocommit_mode_whatever_the_last_client_did(
        self, opened: Opener, endpoint: Endpoint
    ) -> None:
        pool = opened(endpoint, min_size=1)
        connection = pool.take()
        if opened.kind == "sync":
            connection.autocommit = False
        else:
            pool.run(connection.set_autocommit(False))
        pool.give_back(connection)
        connection = pool.take()
        assert connection.autocommit
        pool.give_back(connection)

    def test_the_pool_replaces_a_connection_that_died_in_its_clients_hands(
        self, opened: Opener, endpoint: Endpoint, server: PlainPostgres
    ) -> None:
        pool = opened(endpoint, min_size=1)
        connection = pool.take()
        terminate(server)
        with pytest.raises(psycopg.OperationalError):
            pool.execute(connection, "SELECT 1")
        pool.give_back(connection)
        assert pool.pid()


@contextmanager
def swallowing(server_port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """A way to the server whose present connections can be made to swallow everything, while new ones work."""
    muted = [threading.Event()]

    def pump(source: socket.socket, sink: socket.socket, mute: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                if not mute.is_set():
                    sink.sendall(data)
        except OSError:
            return

    def serve(client: socket.socket) -> None:
        mute = muted[-1]
        with socket.create_connection(("127.0.0.1", server_port)) as upstream:
            back = threading.Thread(target=pump, args=(upstream, client, mute), daemon=True)
            back.start()
            pump(client, upstream, mute)
            upstream.shutdown(socket.SHUT_RDWR)
            back.join(10)

    def swallow() -> None:
        muted[-1].set()
        muted.append(threading.Event())

    with listening(serve) as port:
        yield port, swallow


class TestTokens:
    def test_every_connection_has_the_token_of_its_time(
        self, opened: Opener, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A token that PostgreSQL takes for a password; the source hands out another one each time.
        assert isinstance(endpoint.auth, PasswordAuth)
        password = str(endpoint.auth.password)
        asked: list[str] = []

        def current() -> str:
            asked.append(password)
            return password

        tokens = TokenSource(endpoint)
        monkeypatch.setattr(tokens, "token", current)
        opened(replace(endpoint, auth=PasswordAuth("not this one")), tokens, min_size=3)
        assert len(asked) == 3

    def test_one_signature_serves_a_whole_pool(
        self, opened: Opener, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(endpoint.auth, PasswordAuth)
        password = str(endpoint.auth.password)
        monkeypatch.setattr(token_module, "sign_token", lambda *_: password)
        keys = IamAuth(access_key_id="AKIAX", secret_access_key="s")
        tokens = TokenSource(Endpoint("localhost", region="eu-central-1", auth=keys))
        opened(endpoint, tokens, min_size=8)
        assert tokens.signed == 1


class TestFails:
    def test_nobody_listening_is_told_at_once(self, opened: Opener, endpoint: Endpoint, closed_port: int) -> None:
        started = time.monotonic()
        with pytest.raises(ConnectionFailed, match="refused"):
            opened(replace(endpoint, port=closed_port))
        assert time.monotonic() - started < 5

    def test_a_refused_identity_is_told_at_once(self, opened: Opener, endpoint: Endpoint) -> None:
        with pytest.raises(ConnectionFailed, match="password authentication failed") as caught:
            opened(replace(endpoint, auth=PasswordAuth("wrong-geheim")))
        assert "geheim" not in str(caught.value)

    def test_missing_credentials_are_told_at_once(
        self, opened: Opener, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none(auth: IamAuth) -> None:
            raise CredentialsError("there are none")

        monkeypatch.setattr(token_module, "signing_keys", none)
        tokens = TokenSource(Endpoint("localhost", region="eu-central-1"))
        with pytest.raises(CredentialsError, match="there are none"):
            opened(endpoint, tokens)

    def test_a_silent_server_costs_no_more_than_the_time_given(self, opened: Opener, endpoint: Endpoint) -> None:
        def hold(client: socket.socket) -> None:
            while client.recv(4096):
                pass

        with listening(hold) as port:
            started = time.monotonic()
            with pytest.raises(ConnectionFailed, match="no answer"):
                opened(replace(endpoint, port=port), timeout_s=0.3)
            assert time.monotonic() - started < 5

    def test_a_limit_met_while_it_fills_is_told(self, opened: Opener, tls_server: PlainPostgres) -> None:
        role = "pool_limit"
        with psycopg.connect(**tls_server.conninfo(), autocommit=True) as superuser:  # type: ignore[arg-type]
            superuser.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x' CONNECTION LIMIT 2")
        endpoint = replace(Endpoint.from_dsn(tls_server.dsn), user=role, auth=PasswordAuth("x"))
        try:
            with pytest.raises(ConnectionFailed, match="too many connections for role"):
                opened(endpoint, min_size=4, timeout_s=2.0)
        finally:
            with psycopg.connect(**tls_server.conninfo(), autocommit=True) as superuser:  # type: ignore[arg-type]
                superuser.execute(f"DROP ROLE {role}")

    def test_a_client_learns_why_no_connection_comes(
        self, opened: Opener, endpoint: Endpoint, server: PlainPostgres
    ) -> None:
        pool = opened(endpoint, min_size=1, timeout_s=2.0)
        with refusing("08006", "unable to accept connection, access denied", H="Signature expired: x") as port:
            pool.pool._supply.endpoint = replace(endpoint, port=port)
            terminate(server)
            with pytest.raises(PoolTimeout, match="Signature expired") as caught:
                pool.take()
        assert isinstance(caught.value.__cause__, ConnectionFailed)

    def test_a_refused_identity_does_not_hold_every_client_up(
        self, opened: Opener, endpoint: Endpoint, server: PlainPostgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool_module, "_REFUSED_TIMEOUT_S", 0.1)
        pool = opened(endpoint, min_size=1)
        with refusing("08006", "unable to accept connection, access denied") as port:
            pool.pool._supply.endpoint = replace(endpoint, port=port)
            terminate(server)
            with pytest.raises(PoolTimeout):
                pool.take(timeout=2.0)
            started = time.monotonic()
            with pytest.raises(PoolTimeout, match="access denied"):
                pool.take(timeout=60.0)
            assert time.monotonic() - started < 20

    def test_it_recovers_when_the_endpoint_does(
        self, opened: Opener, endpoint: Endpoint, server: PlainPostgres
    ) -> None:
        pool = opened(endpoint, min_size=1)
        with refusing("57P03", "the database system is starting up") as port:
            pool.pool._supply.endpoint = replace(endpoint, port=port)
            terminate(server)
            with pytest.raises(PoolTimeout):
                pool.take(timeout=1.0)
        pool.pool._supply.endpoint = endpoint
        assert pool.pid()

    @pytest.mark.parametrize(("min_size", "max_size"), [(2, 1), (-1, None)])
    def test_wrong_sizes_connect_nowhere(
        self, opened: Opener, endpoint: Endpoint, min_size: int, max_size: int | None
    ) -> None:
        with pytest.raises(ValueError, match="size"):
            opened(replace(endpoint, host="absent.invalid"), min_size=min_size, max_size=max_size)


class TestOpensLater:
    def test_in_the_loop_that_uses_it(self, endpoint: Endpoint) -> None:
        pool = unopened_async_pool(endpoint, TokenSource(endpoint), min_size=2)

        async def use() -> tuple[object, int]:
            async with pool, pool.connection() as connection:
                cursor = await connection.execute("SELECT 1")
                return await cursor.fetchone(), pool.get_stats()["pool_size"]

        assert asyncio.run(use()) == ((1,), 2)

    def test_a_refused_identity_is_told_when_it_opens(self, endpoint: Endpoint) -> None:
        wrong = replace(endpoint, auth=PasswordAuth("wrong"))
        pool = unopened_async_pool(wrong, TokenSource(wrong))

        async def use() -> None:
            async with pool:
                pass

        with pytest.raises(ConnectionFailed, match="password authentication failed"):
            asyncio.run(use())

    def test_a_pool_opens_once(self, opened: Opener, endpoint: Endpoint) -> None:
        pool = opened(endpoint, min_size=1)
        pool.run(pool.pool.open())
        assert pool.pool.get_stats()["connections_num"] == 1
        pool.run(pool.pool.close())
        with pytest.raises(psycopg.OperationalError, match="already been opened"):
            pool.run(pool.pool.open())


def test_connections_are_replaced_at_fifty_minutes_with_jitter(endpoint: Endpoint) -> None:
    with open_pool(endpoint, TokenSource(endpoint), min_size=4) as pool:
        left = [connection._expire_at - time.monotonic() for connection in pool._pool]
    assert all(0.94 * 50 * 60 <= one <= 50 * 60 for one in left)
    assert max(left) - min(left) > 0.01


def test_nothing_is_left_when_it_is_closed(endpoint: Endpoint, server: PlainPostgres) -> None:
    threads = set(threading.enumerate())
    with open_pool(endpoint, TokenSource(endpoint), min_size=3) as pool:
        connections = list(pool._pool)
    assert all(connection.closed for connection in connections)
    assert not set(threading.enumerate()) - threads
