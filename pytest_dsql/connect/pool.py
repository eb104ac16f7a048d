"""Connection pools: psycopg_pool's own, with a current token per connection and only live connections handed out.

The connections are in autocommit mode: psycopg would otherwise begin a transaction with the first statement and leave
it open, and DSQL ends a transaction at 300 s. `with connection.transaction():` makes one where it is wanted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from typing import Any, Final, Self, cast, final

from psycopg import AsyncConnection, Connection, OperationalError, pq
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from pytest_dsql.connect.dialer import TIMEOUT_S, dial, dial_async
from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.readiness import EVENT_READ, EVENT_WRITE, wait_ready, wait_ready_async
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, CredentialsError, ErrorClass

#: DSQL ends a session at 60 minutes (AWS user guide, "Cluster quotas and database limits"). psycopg_pool takes up to
#: 5 % off at random, so that connections made together are not replaced together.
MAX_LIFETIME_S: Final = 50 * 60
#: How long a connection may take to answer before it is taken for dead.
_LIVENESS_TIMEOUT_S: Final = 5.0
#: How long psycopg_pool goes on trying to replace a connection before it waits for the next client to ask.
_RECONNECT_TIMEOUT_S: Final = 60.0
#: How long a client waits once the server has refused our identity: another attempt's time, not the whole timeout.
_REFUSED_TIMEOUT_S: Final = 2.0


@final
class _Supply:
    """Where a pool's connections come from, and how the last attempt ended."""

    def __init__(self, endpoint: Endpoint, tokens: TokenSource, timeout_s: float) -> None:
        self.endpoint = endpoint
        self.tokens = tokens
        self.timeout_s = timeout_s
        self.failure: ConnectionFailed | CredentialsError | None = None
        self.first: deque[Any] = deque()  #: the connection that showed that the endpoint can be reached

    def take_first(self) -> Any:
        """Return that connection to the worker that asks first, None to the others."""
        try:
            return self.first.popleft()
        except IndexError:
            return None

    def timeout_for(self, timeout_s: float) -> float:
        """Return how long it makes sense to wait for a connection."""
        failure = self.failure
        if isinstance(failure, CredentialsError) or (failure and failure.error_class is ErrorClass.AUTH):
            return min(timeout_s, _REFUSED_TIMEOUT_S)
        return timeout_s

    def explain(self, timeout: PoolTimeout) -> PoolTimeout:
        """Add why no connection came to what psycopg_pool says."""
        return timeout if self.failure is None else PoolTimeout(f"{timeout}; the last attempt failed: {self.failure}")


class PooledConnection(Connection[TupleRow]):
    """A pool's connection, made by the dialer."""

    retire_at: float  #: on the monotonic clock

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Make a connection for a pool, which passes its supply."""
        del conninfo
        supply: _Supply = kwargs["supply"]
        if (first := supply.take_first()) is not None:
            return cast(Self, first)
        try:
            connection, _ = dial(supply.endpoint, supply.tokens, timeout_s=supply.timeout_s, connection_class=cls)
        except (ConnectionFailed, CredentialsError) as error:
            supply.failure = error
            raise
        supply.failure = None
        connection.retire_at = time.monotonic() + MAX_LIFETIME_S
        return connection


class AsyncPooledConnection(AsyncConnection[TupleRow]):
    """An asynchronous pool's connection, made by the dialer."""

    retire_at: float  #: on the monotonic clock

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Make a connection for a pool, which passes its supply."""
        del conninfo
        supply: _Supply = kwargs["supply"]
        if (first := supply.take_first()) is not None:
            return cast(Self, first)
        try:
            connection, _ = await dial_async(
                supply.endpoint, supply.tokens, timeout_s=supply.timeout_s, connection_class=cls
            )
        except (ConnectionFailed, CredentialsError) as error:
            supply.failure = error
            raise
        supply.failure = None
        connection.retire_at = time.monotonic() + MAX_LIFETIME_S
        return connection


@final
class DsqlPool(ConnectionPool[PooledConnection]):
    """A psycopg_pool whose clients get a live connection, or the reason why there is none."""

    def __init__(self, supply: _Supply, min_size: int, max_size: int | None, name: str | None) -> None:
        self._supply = supply
        super().__init__(
            connection_class=PooledConnection,
            kwargs={"supply": supply},
            min_size=min_size,
            max_size=max_size,
            open=False,
            check=self._check_on_checkout,
            name=name,
            timeout=supply.timeout_s,
            max_lifetime=MAX_LIFETIME_S,
            reconnect_timeout=_RECONNECT_TIMEOUT_S,
        )

    def open(self, wait: bool = True, timeout: float | None = None) -> None:
        """Connect once, then fill the pool; with `wait`, until it holds `min_size` connections. Harmless when open.

        The first connection is made in the caller's thread, so that its failure is the caller's, at once: psycopg_pool
        would retry behind the scenes and say only that it took too long. Raises ConnectionFailed and CredentialsError.
        """
        if not self.closed:
            return
        first = PooledConnection.connect(supply=self._supply)
        if self.min_size:
            self._supply.first.append(first)
        else:
            first.close()
        try:
            super().open()
        except OperationalError:
            first.close()  # a pool opens once
            raise
        if not wait:
            return
        try:
            self.wait(self.timeout if timeout is None else timeout)
        except PoolTimeout as error:
            raise self._supply.failure or self._supply.explain(error) from None

    def getconn(self, timeout: float | None = None) -> PooledConnection:
        """Take a connection out of the pool. Raises PoolTimeout, which says why the last attempt to connect failed."""
        patience_s = self._supply.timeout_for(self.timeout if timeout is None else timeout)
        try:
            return super().getconn(patience_s)
        except PoolTimeout as error:
            raise self._supply.explain(error) from self._supply.failure

    @staticmethod
    def check_connection(conn: PooledConnection) -> None:
        """Raise OperationalError, and close the connection, unless it answers and may still live for a while."""
        try:
            _refuse_retired(conn)
            _ping(conn.pgconn)
            if not conn.autocommit:
                conn.autocommit = True  # its last client changed it
        except BaseException:
            conn.pgconn.finish()
            raise

    def _check_on_checkout(self, conn: PooledConnection) -> None:
        try:
            self.check_connection(conn)
        except _Silent:
            # A network that swallowed one connection's packets swallowed the others'. Finding out one by one would take
            # longer than any client waits.
            self.drain()
            raise
        except OperationalError:
            self.check()  # psycopg_pool would otherwise try the idle ones one by one, and wait between them
            raise


@final
class AsyncDsqlPool(AsyncConnectionPool[AsyncPooledConnection]):
    """An asynchronous psycopg_pool whose clients get a live connection, or the reason why there is none."""

    def __init__(self, supply: _Supply, min_size: int, max_size: int | None, name: str | None) -> None:
        self._supply = supply
        super().__init__(
            connection_class=AsyncPooledConnection,
            kwargs={"supply": supply},
            min_size=min_size,
            max_size=max_size,
            open=False,
            check=self._check_on_checkout,
            name=name,
            timeout=supply.timeout_s,
            max_lifetime=MAX_LIFETIME_S,
            reconnect_timeout=_RECONNECT_TIMEOUT_S,
        )

    async def open(self, wait: bool = True, timeout: float | None = None) -> None:  # noqa: ASYNC109 - psycopg_pool's
        """Connect once, then fill the pool, likewise; `async with pool:` does it."""
        if not self.closed:
            return
        first = await AsyncPooledConnection.connect(supply=self._supply)
        if self.min_size:
            self._supply.first.append(first)
        else:
            await first.close()
        try:
            await super().open()
        except OperationalError:
            await first.close()
            raise
        if not wait:
            return
        try:
            await self.wait(self.timeout if timeout is None else timeout)
        except PoolTimeout as error:
            raise self._supply.failure or self._supply.explain(error) from None

    async def getconn(self, timeout: float | None = None) -> AsyncPooledConnection:  # noqa: ASYNC109 - psycopg_pool's
        """Take a connection out of the pool. Raises PoolTimeout, which says why the last attempt to connect failed."""
        patience_s = self._supply.timeout_for(self.timeout if timeout is None else timeout)
        try:
            return await super().getconn(patience_s)
        except PoolTimeout as error:
            raise self._supply.explain(error) from self._supply.failure

    @staticmethod
    async def check_connection(conn: AsyncPooledConnection) -> None:
        """Raise OperationalError, and close the connection, unless it answers and may still live for a while."""
        try:
            _refuse_retired(conn)
            await _ping_async(conn.pgconn)
            if not conn.autocommit:
                await conn.set_autocommit(True)
        except BaseException:
            conn.pgconn.finish()
            raise

    async def _check_on_checkout(self, conn: AsyncPooledConnection) -> None:
        try:
            await self.check_connection(conn)
        except _Silent:
            await self.drain()
            raise
        except OperationalError:
            await self.check()
            raise


def open_pool(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    min_size: int = 4,
    max_size: int | None = None,
    timeout_s: float = TIMEOUT_S,
    name: str | None = None,
) -> DsqlPool:
    """Open a pool and wait until it holds `min_size` connections.

    `timeout_s` bounds a connection attempt, the opening, and a client's wait for a connection. Use it as a context
    manager, or close it. Raises ConnectionFailed or CredentialsError when the endpoint can't be reached or refuses us.
    """
    pool = DsqlPool(_Supply(endpoint, tokens, timeout_s), min_size, max_size, name)
    pool.open()
    return pool


async def open_async_pool(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    min_size: int = 4,
    max_size: int | None = None,
    timeout_s: float = TIMEOUT_S,
    name: str | None = None,
) -> AsyncDsqlPool:
    """Open an asynchronous pool, likewise."""
    pool = unopened_async_pool(endpoint, tokens, min_size=min_size, max_size=max_size, timeout_s=timeout_s, name=name)
    await pool.open()
    return pool


def unopened_async_pool(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    min_size: int = 4,
    max_size: int | None = None,
    timeout_s: float = TIMEOUT_S,
    name: str | None = None,
) -> AsyncDsqlPool:
    """Make an asynchronous pool outside any event loop, for `async with pool:` in the loop that will use it.

    That raises ConnectionFailed or CredentialsError when the endpoint can't be reached or refuses us.
    """
    return AsyncDsqlPool(_Supply(endpoint, tokens, timeout_s), min_size, max_size, name)


class _Silent(OperationalError):
    """No answer in time, although the connection looks open."""


def _refuse_retired(connection: PooledConnection | AsyncPooledConnection) -> None:
    # psycopg_pool looks at the age when a connection comes back, not when it goes out after a long rest.
    if time.monotonic() >= connection.retire_at:
        raise OperationalError("the connection is too old to be handed out")


def _ping(pgconn: pq.abc.PGconn) -> None:
    deadline = time.monotonic() + _LIVENESS_TIMEOUT_S
    for events in _round_trip(pgconn):
        if not wait_ready(pgconn.socket, events, deadline - time.monotonic()):
            raise _Silent(f"no answer within {_LIVENESS_TIMEOUT_S:.0f} s")


async def _ping_async(pgconn: pq.abc.PGconn) -> None:
    deadline = time.monotonic() + _LIVENESS_TIMEOUT_S
    for events in _round_trip(pgconn):
        if not await wait_ready_async(pgconn.socket, events, deadline - time.monotonic()):
            raise _Silent(f"no answer within {_LIVENESS_TIMEOUT_S:.0f} s")


def _round_trip(pgconn: pq.abc.PGconn) -> Generator[int, None, None]:
    """Send an empty query and take its answer, whatever it is; yields the events to wait for.

    Raises OperationalError when the connection is broken.
    """
    pgconn.send_query(b"")
    while pgconn.flush():
        yield EVENT_READ | EVENT_WRITE
        pgconn.consume_input()
    while True:
        while pgconn.is_busy():
            yield EVENT_READ
            pgconn.consume_input()
        if pgconn.get_result() is None:
            break
    if pgconn.status != pq.ConnStatus.OK:
        raise OperationalError("the connection was lost")
