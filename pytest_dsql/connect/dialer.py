"""The dialer: makes one connection without blocking, and times each phase of it."""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final, overload

from psycopg import AsyncConnection, Connection, pq
from psycopg.rows import TupleRow

from pytest_dsql.connect import refusal
from pytest_dsql.connect.backoff import Patience
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.readiness import EVENT_READ, EVENT_WRITE, wait_ready, wait_ready_async
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, ErrorClass

#: How long a connection may take by default, all addresses and phases together.
TIMEOUT_S: Final = 10.0

_SyncT = TypeVar("_SyncT", bound=Connection[Any])
_AsyncT = TypeVar("_AsyncT", bound=AsyncConnection[Any])

_TCP, _TLS, _AUTHENTICATION, _STARTUP, _DONE = range(5)
_PHASES: Final = ("tcp", "tls", "authentication", "startup")
_STAGES: Final[dict[int, int]] = {
    pq.ConnStatus.NEEDED: _TCP,
    pq.ConnStatus.STARTED: _TCP,
    pq.ConnStatus.MADE: _TLS,
    pq.ConnStatus.SSL_STARTUP: _TLS,
    pq.ConnStatus.GSS_STARTUP: _TLS,
    pq.ConnStatus.AWAITING_RESPONSE: _AUTHENTICATION,
    14: _AUTHENTICATION,  # CONNECTION_AUTHENTICATING, since libpq 18
    pq.ConnStatus.AUTH_OK: _STARTUP,
    pq.ConnStatus.SETENV: _STARTUP,
    pq.ConnStatus.CHECK_WRITABLE: _STARTUP,
    pq.ConnStatus.CONSUME: _STARTUP,
    pq.ConnStatus.CHECK_TARGET: _STARTUP,
    pq.ConnStatus.CHECK_STANDBY: _STARTUP,
    pq.ConnStatus.OK: _DONE,
}
#: Each connection begins with another address of the host, as a resolver's round robin would have it.
_turn = itertools.count()


@final
@dataclass(frozen=True, slots=True)
class Phases:
    """How long each phase of a connection took, in nanoseconds; they add up to the total, but for rounding.

    Client CPU is inside: reading the root certificate and both ends of the TLS handshake count to `tls_ns`.
    """

    resolve_ns: int  #: 0 when the endpoint was resolved before
    tcp_ns: int
    tls_ns: int  #: 0 without TLS
    authentication_ns: int  #: from the startup message to the server's "authenticated"
    startup_ns: int  #: until the server was ready for the first statement
    total_ns: int


@final
class Dial:
    """One connection being made. Never blocks once the endpoint is resolved; begins at once.

    Wait until `fileno()` is ready for `wants`, call `advance()`, and so on until it returns True: `pgconn` is then
    connected and non-blocking, and belongs to the caller. Both `fileno()` and `wants` may change with every call (libpq
    closes the socket and opens another for the next address), so take the old one out of a selector before it.
    All methods raise ConnectionFailed, after which everything is closed.
    """

    def __init__(self, endpoint: Endpoint, password: str = "") -> None:
        self._secret = password
        del password  # not a local of any frame that raises: tracebacks may show locals
        self._started_ns = time.perf_counter_ns()
        self.endpoint: Final = endpoint.resolved()
        self._resolved_ns = time.perf_counter_ns()
        self._addresses = deque(_in_turn(self.endpoint.addresses) or [""])
        self._marks = [0] * _DONE  #: when each stage ended
        self._stage = _TCP
        self._negotiated = False  #: TLS was spoken of
        self.wants = EVENT_WRITE  #: the events to wait for: selectors.EVENT_READ or EVENT_WRITE
        self.pgconn: pq.abc.PGconn
        self._begin_next()

    def fileno(self) -> int:
        """Return the socket's descriptor, as of now."""
        return self.pgconn.socket

    @property
    def phase(self) -> str:
        """The phase under way: tcp, tls, authentication or startup."""
        return _PHASES[min(self._stage, _STARTUP)]

    @property
    def phases(self) -> Phases:
        """How long each phase took. Meaningful once `advance` has returned True."""
        tcp, tls, authentication, startup = self._marks
        return Phases(
            resolve_ns=self._resolved_ns - self._started_ns,
            tcp_ns=tcp - self._resolved_ns,
            tls_ns=tls - tcp,
            authentication_ns=authentication - tls,
            startup_ns=startup - authentication,
            total_ns=startup - self._started_ns,
        )

    def advance(self) -> bool:
        """Go on as far as possible without waiting. True when connected. Raises ConnectionFailed."""
        entered_ns = time.perf_counter_ns()
        polled = self.pgconn.connect_poll()
        status = self.pgconn.status
        if status == pq.ConnStatus.SSL_STARTUP or status == pq.ConnStatus.GSS_STARTUP:
            self._negotiated = True
        self._enter(_STAGES.get(status, self._stage), entered_ns)
        if polled == pq.PollingStatus.READING:
            self.wants = EVENT_READ
        elif polled == pq.PollingStatus.WRITING:
            self.wants = EVENT_WRITE
        elif polled == pq.PollingStatus.OK:
            self._secret = ""
            refusal.hide_sqlstate(self.pgconn)
            self.pgconn.nonblocking = 1
            return True
        else:
            self._go_on_after(self._failure())
        return False

    def too_slow(self, waited_s: float) -> None:
        """Give this address up after waiting for `waited_s` seconds; go on with the next one.

        Raises ConnectionFailed when there is none.
        """
        self._go_on_after(
            ConnectionFailed(f"{self._whom()}: no answer within {waited_s:.3g} s ({self.phase})", phase=self.phase)
        )

    @property
    def addresses_left(self) -> int:
        """How many addresses may still be tried after the present one."""
        return len(self._addresses)

    def close(self) -> None:
        """Give up. Harmless when closed already."""
        self._secret = ""
        self._addresses.clear()
        self.pgconn.finish()

    def _begin_next(self) -> None:
        """Begin with the next address that does not fail at once. Raises ConnectionFailed when none is left."""
        while True:
            self._stage, self._negotiated = _TCP, False
            self.wants = EVENT_WRITE
            self.pgconn = pq.PGconn.connect_start(self._conninfo(self._addresses.popleft()))
            if self.pgconn.status != pq.ConnStatus.BAD:
                refusal.show_sqlstate(self.pgconn)
                return
            failure = self._failure()
            if not self._addresses:
                self.close()
                raise failure

    def _go_on_after(self, failure: ConnectionFailed) -> None:
        if not self._addresses:
            self.close()
            raise failure
        self.pgconn.finish()
        self._begin_next()

    def _enter(self, stage: int, entered_ns: int) -> None:
        """Note the end of the stages before `stage`; where libpq goes back to try without TLS, they end anew."""
        # The socket was connected before this call; what the call did then belongs to the next phase.
        end_ns = entered_ns if self._stage == _TCP else time.perf_counter_ns()
        for passed in range(self._stage, stage):
            # Without TLS libpq still waits to write between TCP and the startup message.
            self._marks[passed] = self._marks[_TCP] if passed == _TLS and not self._negotiated else end_ns
        self._stage = stage

    def _failure(self) -> ConnectionFailed:
        refused = refusal.refusal(self.pgconn)
        if refused.answered:
            self._addresses.clear()
        phase = self.phase
        if phase == "tcp" and ("SSL" in refused.message or "certificate" in refused.message):
            phase = "tls"  # it failed in the very call in which TCP was done
        hint = f" ({refused.hint})" if refused.hint else ""
        advice = "; sslrootcert names the root to trust" if "certificate verify failed" in refused.message else ""
        return ConnectionFailed(
            f"{self._whom()}: {refused.message}{hint}{advice} ({phase})",
            phase=phase,
            sqlstate=refused.sqlstate,
            hint=refused.hint,
        )

    def _whom(self) -> str:
        endpoint = self.endpoint
        return f"could not connect to {endpoint.user}@{endpoint.host}:{endpoint.port}"

    def _conninfo(self, address: str) -> bytes:
        parameters = self.endpoint.conninfo(self._secret)
        parameters |= {"host": self.endpoint.host, "hostaddr": address}
        # psycopg's make_conninfo would parse it twice more.
        return " ".join(f"{name}={_quoted(value)}" for name, value in parameters.items()).encode()


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _in_turn(addresses: tuple[str, ...]) -> list[str]:
    """Rotate the addresses of each family; the family that the resolver put first stays first."""
    turn = next(_turn)
    families: dict[bool, list[str]] = {}
    for address in addresses:
        families.setdefault(":" in address, []).append(address)
    return [family[(turn + offset) % len(family)] for family in families.values() for offset in range(len(family))]


@overload
def dial(
    endpoint: Endpoint, tokens: TokenSource, *, timeout_s: float = TIMEOUT_S, patient: bool = True
) -> tuple[Connection[TupleRow], Phases]: ...
@overload
def dial(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    timeout_s: float = TIMEOUT_S,
    patient: bool = True,
    connection_class: type[_SyncT],
) -> tuple[_SyncT, Phases]: ...
def dial(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    timeout_s: float = TIMEOUT_S,
    patient: bool = True,
    connection_class: type[Connection[Any]] = Connection,
) -> tuple[Connection[Any], Phases]:
    """Make a connection, in autocommit mode, within `timeout_s` seconds.

    Autocommit, because a transaction that psycopg began with the first statement would stay open until DSQL ends it at
    300 s; `with connection.transaction():` makes one where it is wanted. A token that was used before and is refused
    now is signed anew, once. With `patient`, a refusal that passes (`backoff.passes`) is waited out. Raises
    ConnectionFailed and CredentialsError.
    """
    end = time.monotonic() + timeout_s
    patience = Patience(end)
    retried = False
    while True:
        signed_before = tokens.signed
        attempt = None
        try:
            attempt = Dial(endpoint, tokens.token())
            _drive(attempt, end)
        except BaseException as error:
            if attempt is not None:
                attempt.close()
            if patient and isinstance(error, ConnectionFailed):
                pause_s = patience.pause_s(error, time.monotonic())
                if pause_s is not None:
                    time.sleep(pause_s)
                    continue
                if (reason := patience.reason(error)) is not error:
                    raise reason from None
            if retried or not may_be_stale(error, tokens, signed_before):
                raise
            retried = True
            continue
        connection = connection_class(attempt.pgconn)
        connection.autocommit = True
        return connection, attempt.phases


async def dial_async(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    timeout_s: float = TIMEOUT_S,
    connection_class: type[_AsyncT],
) -> tuple[_AsyncT, Phases]:
    """Make an asynchronous connection, likewise and patiently; looks up host and credentials in a thread."""
    import asyncio

    end = time.monotonic() + timeout_s
    patience = Patience(end)
    retried = False
    while True:
        signed_before = tokens.signed
        attempt = None
        try:
            resolved = await asyncio.to_thread(endpoint.resolved)
            attempt = Dial(resolved, await asyncio.to_thread(tokens.token))
            await _drive_async(attempt, end)
        except BaseException as error:
            if attempt is not None:
                attempt.close()
            if isinstance(error, ConnectionFailed):
                pause_s = patience.pause_s(error, time.monotonic())
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                    continue
                if (reason := patience.reason(error)) is not error:
                    raise reason from None
            if retried or not may_be_stale(error, tokens, signed_before):
                raise
            retried = True
            continue
        connection = connection_class(attempt.pgconn)
        await connection.set_autocommit(True)
        return connection, attempt.phases


def _drive(attempt: Dial, end: float) -> None:
    clock = _AddressClock(attempt, end)
    while True:
        if not wait_ready(attempt.fileno(), attempt.wants, clock.left_s()):
            clock.too_slow()
        elif attempt.advance():
            return


async def _drive_async(attempt: Dial, end: float) -> None:
    clock = _AddressClock(attempt, end)
    while True:
        if not await wait_ready_async(attempt.fileno(), attempt.wants, clock.left_s()):
            clock.too_slow()
        elif attempt.advance():
            return


class _AddressClock:
    """Shares the time for a connection out among its addresses."""

    def __init__(self, attempt: Dial, end: float) -> None:
        self._attempt = attempt
        self._end = end
        self._left = -1

    def left_s(self) -> float:
        """Return how long the present address may still take."""
        now = time.monotonic()
        if self._attempt.addresses_left != self._left:
            self._left = self._attempt.addresses_left
            self._begin = now
            self._address_end = now + (self._end - now) / (self._left + 1)
        return self._address_end - now

    def too_slow(self) -> None:
        self._attempt.too_slow(time.monotonic() - self._begin)


def may_be_stale(error: BaseException, tokens: TokenSource, signed_before: int) -> bool:
    """Tell whether a fresh token may help, and have one signed for the next attempt.

    "access denied" is DSQL's answer to a stale token as to a missing permission; the hint tells, if there is one.
    """
    if not isinstance(error, ConnectionFailed) or error.error_class is not ErrorClass.AUTH:
        return False
    if not isinstance(tokens.endpoint.auth, IamAuth) or tokens.signed != signed_before:
        return False  # it was fresh
    if error.hint is not None and "expired" not in error.hint:
        return False
    tokens.discard(signed_before)
    return True
