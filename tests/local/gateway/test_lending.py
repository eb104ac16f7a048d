"""PostgreSQL's connections, lent to the sessions that have something to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames, lending
from pytest_dsql.local.gateway.lending import Lender
from pytest_dsql.local.gateway.loan import Loan
from pytest_dsql.local.gateway.opening import BackendRefused
from pytest_dsql.local.gateway.startup import Startup
from tests.local.gateway.harness import direct

ADMIN = Startup("admin", "postgres", (), b"")
APP = Startup("app", "postgres", (), b"")


class Client(asyncio.Protocol):
    """A session as the lender sees it: what it sends goes to whatever transport it has."""

    def __init__(self, lender: Lender, startup: Startup = ADMIN) -> None:
        self.over = False
        self.prepared: dict[bytes, bytes] = {}
        self.key = b""
        self.ended: bytes | None = None
        self.lost = False
        self._buffer = b""
        self._answer: list[tuple[str, bytes]] = []
        self._asked: asyncio.Future[list[tuple[str, bytes]]] | None = None
        self.loan = Loan(lender, startup, self)
        self.transport: asyncio.Transport = self.loan

    @property
    def idle(self) -> bool:
        return self._asked is None

    def lend(self, transport: asyncio.Transport, key: bytes) -> asyncio.Protocol:
        self.transport, self.key = transport, key
        return self

    def prepared_statements(self) -> dict[bytes, bytes]:
        return self.prepared

    def broken(self, farewell: bytes) -> None:
        self.ended = farewell
        if self._asked is not None:
            self._asked.set_exception(ConnectionError(farewell))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) > 4:
            kind, length = frames.HEADER.unpack_from(self._buffer)
            if len(self._buffer) <= length:
                return
            self._answer.append((chr(kind), self._buffer[5 : 1 + length]))
            self._buffer = self._buffer[1 + length :]
            if chr(kind) == "Z" and self._asked is not None:
                asked, self._asked = self._asked, None
                asked.set_result(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    async def ask(self, data: bytes) -> list[tuple[str, bytes]]:
        self._asked = asyncio.get_running_loop().create_future()
        self._answer = []
        self.loan.touched = True
        self.transport.write(data)
        return await self._asked

    async def query(self, sql: str) -> Any:
        """The first value of the first row, or the SQLSTATE of the error."""
        return value(await self.ask(frames.message(frames.QUERY, sql.encode() + b"\0")))

    async def prepare(self, name: str, sql: str) -> None:
        self.prepared[name.encode()] = parse = frames.message(frames.PARSE, f"{name}\0{sql}\0".encode() + bytes(2))
        await self.ask(parse + frames.message(frames.SYNC, b""))

    async def execute(self, name: str) -> Any:
        bind = frames.message(frames.BIND, b"\0" + name.encode() + b"\0" + bytes(6))
        return value(await self.ask(bind + frames.message(frames.EXECUTE, bytes(5)) + frames.message(frames.SYNC, b"")))

    @property
    def pid(self) -> int:
        return int.from_bytes(self.key[:4], "big")


def value(answer: list[tuple[str, bytes]]) -> Any:
    for kind, payload in answer:
        if kind == "D":
            return payload[6:].decode()
        if kind == "E":
            return frames.fields(payload)["C"].decode()
    return None


@pytest.fixture
def lent(cluster: Cluster) -> Callable[..., None]:
    """Run a test's coroutine with a lender of its own."""

    def run(test: Callable[[Lender], Awaitable[None]], most: int = 100) -> None:
        async def main() -> None:
            lender = Lender(cluster, most)
            try:
                async with asyncio.timeout(60):
                    await test(lender)
            finally:
                lender.close()

        asyncio.run(main())

    return run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - many conditions, none of them an event
        await asyncio.sleep(0.005)


async def idle(*clients: Client) -> None:
    """Return when the clients' connections have come back."""
    await until(lambda: all(client.loan.pooled is None for client in clients))


def test_a_connection_comes_with_the_first_statement_and_goes_back(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        assert lender.connections == 0
        assert await client.query("SELECT 1") == "1"
        assert lender.lent == 1
        await idle(client)
        assert (lender.lent, lender.connections) == (0, 1)
        assert await client.query("SELECT 2") == "2"

    lent(test)


def test_one_connection_serves_many_sessions_in_turn(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        clients = [Client(lender) for _ in range(5)]
        for client in clients:
            assert await client.query("SELECT 1") == "1"
            await idle(client)
        assert lender.connections == 1

    lent(test)


def test_a_session_keeps_its_connection_in_a_transaction(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        client.__class__ = InTransaction
        await client.query("BEGIN")
        await asyncio.sleep(3 * lending._LOOK_S)
        assert client.loan.pooled is not None

    lent(test)


class InTransaction(Client):
    @property
    def idle(self) -> bool:
        return False


def test_the_connection_a_session_had_is_its_first_choice(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first, second = Client(lender), Client(lender)
        await asyncio.gather(first.query("SELECT 1"), second.query("SELECT 1"))
        pids = first.pid, second.pid
        await idle(first, second)
        await second.query("SELECT 1")
        await first.query("SELECT 1")
        assert (first.pid, second.pid) == pids

    lent(test)


def test_prepared_statements_are_made_again(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first, second = Client(lender), Client(lender)
        await first.prepare("mine", "SELECT 'first'")
        await first.prepare("", "SELECT 'unnamed'")
        await idle(first)
        await second.prepare("mine", "SELECT 'second'")
        await idle(second)
        assert lender.connections == 1
        assert await first.execute("mine") == "first"
        assert await first.execute("") == "unnamed"
        await idle(first)
        assert await second.execute("mine") == "second"
        assert lender.connections == 1

    lent(test)


def test_nobody_sees_what_another_session_has_prepared(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first, second = Client(lender), Client(lender)
        await first.prepare("mine", "SELECT 1")
        await first.prepare("", "SELECT 1")
        await idle(first)
        assert await second.execute("mine") == "26000"
        assert await second.execute("") == "26000"
        assert lender.connections == 1

    lent(test)


def test_a_statement_that_can_not_be_made_again_fails_when_it_is_used(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first, second = Client(lender), Client(lender)
        first.prepared[b"gone"] = frames.message(frames.PARSE, b"gone\0SELECT * FROM gone\0" + bytes(2))
        await first.prepare("kept", "SELECT 'kept'")
        await idle(first)
        await second.query("SELECT 1")
        await idle(second)
        assert await first.execute("gone") == "26000"
        assert await first.execute("kept") == "kept"

    lent(test)


def test_a_session_that_can_not_be_parted_keeps_its_connection(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        client.loan.pinned = True
        await client.query("SET application_name = 'kept'")
        await asyncio.sleep(3 * lending._LOOK_S)
        assert await client.query("SHOW application_name") == "kept"

    lent(test)


def test_sequence_values_keep_a_session_its_connection(lent: Callable[..., None], cluster: Cluster) -> None:
    with direct(cluster) as superuser:
        superuser.execute("CREATE SEQUENCE public.lending; GRANT USAGE ON SEQUENCE public.lending TO admin")

    async def test(lender: Lender) -> None:
        client, other = Client(lender), Client(lender)
        client.loan.unsure = other.loan.unsure = True
        await client.query("SELECT nextval('public.lending')")
        await other.query("SELECT 1")
        await idle(other)
        await until(lambda: client.loan.pinned and client.loan.pooled is not None)
        assert await client.query("SELECT currval('public.lending')") == "1"
        assert not other.loan.pinned

    try:
        lent(test)
    finally:
        with direct(cluster) as superuser:
            superuser.execute("DROP SEQUENCE public.lending")


def test_a_statement_that_comes_while_the_connection_is_looked_at_is_not_lost(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        client.loan.unsure = True
        await client.query("SELECT 1")
        client.loan.touched = False
        lender._look()
        assert client.transport is client.loan
        assert await client.query("SELECT 2") == "2"

    lent(test)


def test_roles_and_settings_have_connections_of_their_own(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        named = Startup("admin", "postgres", (("application_name", "named"),), b"")
        clients = [Client(lender, startup) for startup in (ADMIN, APP, named)]
        for client in clients:
            await client.query("SELECT 1")
            await idle(client)
        assert lender.connections == 3
        assert await clients[1].query("SELECT current_user") == "app"
        assert await clients[2].query("SHOW application_name") == "named"

    lent(test)


def test_a_statement_waits_when_all_connections_are_lent(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        clients = [Client(lender) for _ in range(8)]
        answers = await asyncio.gather(*(client.query("SELECT 1") for client in clients))
        assert answers == ["1"] * 8
        assert lender.connections <= 2

    lent(test, most=2)


def test_a_statement_does_not_wait_for_ever(lent: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(lender: Lender) -> None:
        kept, late = Client(lender), Client(lender)
        kept.loan.pinned = True
        await kept.query("SELECT 1")
        monkeypatch.setattr(lending, "_PATIENCE_S", 0.1)  # not before: opening a connection may take longer
        with pytest.raises(ConnectionError):
            await late.query("SELECT 1")
        assert b"too many open connections" in (late.ended or b"")

    lent(test, most=1)


def test_a_login_asks_postgresql_once_for_each_form(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first = await lender.greet(ADMIN)
        assert any(b"server_version" in message for message in first.messages)
        assert await lender.greet(ADMIN) is first
        assert lender.connections == 1
        with pytest.raises(BackendRefused):
            await lender.greet(Startup("nobody", "postgres", (), b""))
        assert lender.connections == 1

    lent(test)


def test_a_login_asks_again_when_the_catalog_has_changed(lent: Callable[..., None], cluster: Cluster) -> None:
    async def test(lender: Lender) -> None:
        with direct(cluster) as superuser:
            superuser.execute("CREATE ROLE passing LOGIN")
            passing = Startup("passing", "postgres", (), b"")
            await lender.greet(passing)
            superuser.execute("DROP ROLE passing")
            cluster.catalog_version += 1
            with pytest.raises(BackendRefused):
                await lender.greet(passing)
        assert await Client(lender).query("SELECT 1") == "1"
        assert lender.connections == 1, "what was opened for a role that may be another one now was closed"

    lent(test)


def test_a_connection_that_ended_is_not_lent(lent: Callable[..., None], cluster: Cluster) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        await client.query("SELECT 1")
        pid = client.pid
        await idle(client)
        with direct(cluster) as superuser:
            superuser.execute("SELECT pg_terminate_backend(%s)", [pid])
        await until(lambda: lender.connections == 0)
        assert await client.query("SELECT 1") == "1"
        assert client.pid != pid

    lent(test)


def test_a_session_that_ends_leaves_its_connection_to_the_next(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        first = Client(lender)
        await first.prepare("mine", "SELECT 1")
        pid = first.pid
        assert first.loan.release()
        first.transport.close()
        await until(lambda: first.lost)
        lender.forget(first.loan)
        second = Client(lender)
        assert await second.execute("mine") == "26000"
        assert second.pid == pid

    lent(test)


def test_a_client_that_leaves_while_it_waits_takes_nothing_along(lent: Callable[..., None]) -> None:
    async def test(lender: Lender) -> None:
        client = Client(lender)
        client.transport.write(frames.message(frames.QUERY, b"SELECT 1\0"))
        client.transport.close()
        await until(lambda: client.lost and len(lender._free) == 1)
        assert lender.lent == 0

    lent(test)
