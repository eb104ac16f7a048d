"""A session that outlives its connections: runs units of work again after conflicts, outages and lost connections."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, final

from pytest_dsql.errors import RETRYABLE, ConnectionFailed, ErrorClass, classify

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Parameters: TypeAlias = "Sequence[Any] | Mapping[str, Any]"

#: DSQL ends a session after 60 minutes (AWS user guide, "Quotas and limits in Aurora DSQL").
_MAX_AGE_S: Final = 50 * 60
_ATTEMPTS: Final = 12
_FIRST_BACKOFF_S: Final = 0.05
_MAX_BACKOFF_S: Final = 5.0


@final
class Stopped(Exception):
    """The session was told to stop while it waited to try again."""


@final
class Session:
    """One connection at a time to a target, replaced before the hour, and when it was lost.

    `connect` opens a new psycopg connection in autocommit; `stop` ends waiting for the next attempt. A session belongs
    to one thread.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        stop: threading.Event | None = None,
        max_age_s: float = _MAX_AGE_S,
    ) -> None:
        self._connect = connect
        self._stop = stop or threading.Event()
        self._max_age_s = max_age_s
        self._connection: psycopg.Connection[Any] | None = None
        self._opened_s = 0.0
        self.connections = 0  #: connections opened
        self.retries = 0  #: units of work begun again

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Return what `work(connection)` returns, after at most 12 attempts over half a minute.

        The outcome of a failed attempt may be unknown, so `work` must be one that may be done twice. Tried again:
        40001, 40P01, `XX000 server unavailable`, a lost or refused connection. Any other error is raised at once, and
        those after the last attempt. Raises Stopped when told to stop between two attempts.
        """
        import psycopg
        from psycopg.pq import TransactionStatus

        for attempt in range(_ATTEMPTS):
            try:
                return work(self._usable())
            except (psycopg.Error, ConnectionFailed) as error:
                if not _worth_repeating(error) or attempt == _ATTEMPTS - 1:
                    raise
            if self._connection is not None and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self.close()  # lost, or left inside a transaction
            self.retries += 1
            if self._stop.wait(random.uniform(0, min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2**attempt))):
                raise Stopped
        raise AssertionError("unreachable")

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Run one statement (with `%s` parameters) that may be run twice."""
        self.run(lambda connection: connection.execute(sql, parameters))

    def define(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one `CREATE ... IF NOT EXISTS` and return its rows; several sessions may run the same one at once."""
        import psycopg

        for _ in range(_ATTEMPTS - 1):
            # PostgreSQL looks first and creates later: of two at once, the slower one meets the other's catalog rows.
            with contextlib.suppress(
                psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject
            ):
                return self.run(partial(_rows, sql))
        return self.run(partial(_rows, sql))

    def query(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one query (with `%s` parameters)."""
        return self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    def _usable(self) -> psycopg.Connection[Any]:
        connection = self._connection
        if connection is not None and (connection.closed or time.monotonic() - self._opened_s > self._max_age_s):
            self.close()
            connection = None
        if connection is None:
            connection = self._connection = self._connect()
            self._opened_s = time.monotonic()
            self.connections += 1
        return connection


def _rows(sql: str, connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(sql)
    return cursor.fetchall() if cursor.description else []


def _worth_repeating(error: psycopg.Error | ConnectionFailed) -> bool:
    import psycopg

    if isinstance(error, ConnectionFailed):
        return error.error_class in (*RETRYABLE, ErrorClass.LIMIT)
    error_class = classify(error.sqlstate, str(error))
    if error.sqlstate is None:
        # From psycopg itself, or from libpq while connecting. Only these two mean the connection.
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return lost and error_class in (*RETRYABLE, ErrorClass.LIMIT)
    # 53300 and 53400 come while connecting: too many connections, or too many new ones a second.
    return error.sqlstate in ("53300", "53400") or error_class in RETRYABLE
