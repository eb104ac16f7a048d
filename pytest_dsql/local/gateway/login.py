"""From the end of the TLS handshake to a session: startup packet, token, PostgreSQL connection."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from ssl import SSLObject
from typing import Final, cast, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.cluster import ADMIN, Cluster, Principal
from pytest_dsql.local.conduct import FACTORIES
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import frames, startup, token
from pytest_dsql.local.gateway.authority import ALPN, LOCALHOST
from pytest_dsql.local.gateway.directory import ClusterDirectory
from pytest_dsql.local.gateway.disguise import INTERNAL_PREFIX
from pytest_dsql.local.gateway.lending import Greeting, Lender
from pytest_dsql.local.gateway.opening import BackendRefused
from pytest_dsql.local.gateway.session import Session
from pytest_dsql.local.gateway.startup import Startup, StartupRefused
from pytest_dsql.local.gateway.statements import Statements
from pytest_dsql.local.gateway.tls import ServerName, ServerNames
from pytest_dsql.local.gateway.vigil import Vigil
from pytest_dsql.local.latency.control import ConnectDelays, Pace
from pytest_dsql.local.quotas import NotTaken, Quotas
from pytest_dsql.local.roles import DENIED, no_access, no_action

_LOG: Final = logging.getLogger(__name__)

#: PostgreSQL's own limit for a password message (PG_MAX_AUTH_TOKEN_LENGTH); a token is 0.3 to 4 KB.
_MAX_PASSWORD: Final = 65_535

#: PostgreSQL connections opened at the same time. More only queue in its listen backlog, and fail when that is full.
_OPENING_AT_ONCE: Final = 64

_REQUEST_PASSWORD: Final = frames.authentication_request(frames.AUTHENTICATION_CLEARTEXT_PASSWORD)

_AUTHENTICATED: Final = frames.authentication_request(frames.AUTHENTICATION_OK)

_NO_SNI: Final = frames.error("FATAL", "08006", "unable to accept connection, sni was not received")
#: What DSQL says to a name it doesn't serve is not on record.
_UNKNOWN_HOST: Final = frames.error("FATAL", "08006", "unable to accept connection, cluster not found")
_TOO_MANY: Final = frames.error("FATAL", *NotTaken.OPEN.value)
_NO_POSTGRES: Final = frames.error("FATAL", "57P03", "the cluster's PostgreSQL does not answer")
_BAD_PACKET: Final = frames.error("FATAL", "08P01", "invalid length of startup packet")
#: Bytes that are read from a client in one go.
_READ_AT_ONCE: Final = 65_536

_NO_PASSWORD: Final = frames.error("FATAL", "08P01", "expected password response")


class _Refused(Exception):
    """The connection is refused with this message."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


@final
@dataclass
class Reception:
    """What every login needs, shared by all connections of a gateway."""

    directory: ClusterDirectory
    names: ServerNames
    statements: Statements
    begun: Callable[[Session], object]
    ended: Callable[[Session], object]

    def __post_init__(self) -> None:
        self.opening = asyncio.Semaphore(_OPENING_AT_ONCE)
        self.logins: set[Login] = set()  #: that are under way
        self.lenders: dict[str, Lender] = {}  #: by the cluster's id
        self.adjudicators: dict[str, Adjudicator] = {}  #: by the cluster's id
        self.vigil = Vigil(asyncio.get_running_loop())
        self.buffer = memoryview(bytearray(_READ_AT_ONCE))  #: for what any client sends; emptied at once

    def lender(self, cluster: Cluster) -> Lender:
        """Give who lends the connections of a cluster's PostgreSQL."""
        lender = self.lenders.get(cluster.id)
        if lender is None:
            self.lenders[cluster.id] = lender = Lender(cluster, cluster.backends)
        return lender

    def adjudicator(self, cluster: Cluster) -> Adjudicator:
        """Give who decides about a cluster's conflicts."""
        adjudicator = self.adjudicators.get(cluster.id)
        if adjudicator is None:
            self.adjudicators[cluster.id] = adjudicator = Adjudicator(cluster)
        return adjudicator

    def verify(self, name: ServerName, user: str, password: bytes) -> tuple[Cluster, int, Principal]:
        """Give the cluster that the client reaches, in which of its Regions, and the principal that it is.

        Raises TokenRefused.
        """
        presented = token.read(password)
        cluster = self.directory.by_host(name.host or "")
        if cluster is None:
            # `localhost` says nothing about the cluster; the host that the token was signed for may.
            cluster = self.directory.by_host(presented.host_name) or self.directory.default()
        region = _region_of(cluster, name.host or "", presented)
        endpoint = cluster.endpoints[region]
        principal = token.verify(
            presented,
            user=user,
            hosts=(endpoint.host, LOCALHOST),
            region=endpoint.region,
            principals=cluster.principals,
            now=cluster.clock.now(),
            at=cluster.clock.at,
        )
        return cluster, region, principal


@final
class Login(asyncio.Protocol):
    """The client's side of a connection until its session begins."""

    def __init__(
        self, reception: Reception, timeout_s: float, *, direct: bool, delays: ConnectDelays | None = None
    ) -> None:
        self._reception = reception
        self._delays = delays
        self._authenticated = False  #: the client has been told that it is
        self._region = 0  #: of the cluster's
        self._asked_at = 0.0  #: when the startup packet came
        self._direct = direct
        self._buffer = bytearray()
        self._startup: Startup | None = None
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._too_late)
        self._task: asyncio.Task[None] | None = None
        self._counted: Quotas | None = None  #: where this connection was counted, until its session begins
        self._transport: asyncio.Transport
        self._name: ServerName

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS handshake is done."""
        # uvloop's transports are asyncio's in all but the class.
        self._transport = cast(asyncio.Transport, transport)
        self._reception.logins.add(self)
        connection: SSLObject = transport.get_extra_info("ssl_object")
        self._name = self._reception.names.name_of(connection)
        if self._direct and connection.selected_alpn_protocol() != ALPN:
            # As PostgreSQL 17: direct TLS only with the protocol's name, against cross-protocol attacks.
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect the startup packet, then the password."""
        if self._transport.is_closing():
            return
        self._buffer += data
        try:
            if self._startup is None:
                self._read_startup()
            if self._startup is not None and self._task is None:
                self._read_password(self._startup)
        except _Refused as refused:
            self._refuse(refused.answer)
        except StartupRefused as refused:
            self._refuse(frames.error("FATAL", refused.sqlstate, refused.message))

    def _read_startup(self) -> None:
        if len(self._buffer) < startup.PREFIX.size:
            return
        length, code = startup.PREFIX.unpack_from(self._buffer)
        if not startup.PREFIX.size <= length <= startup.MAX_PACKET:
            raise _Refused(_BAD_PACKET)
        if len(self._buffer) < length:
            return
        packet = bytes(self._buffer[:length])
        del self._buffer[:length]
        if code in (startup.CANCEL_REQUEST, startup.SSL_REQUEST, startup.GSSENC_REQUEST):
            # A cancellation has no effect on DSQL; the others have no business inside TLS.
            self._transport.close()
            return
        if not self._name.received:
            raise _Refused(_NO_SNI)
        if self._name.host is None:
            raise _Refused(_UNKNOWN_HOST)
        self._startup = startup.read(packet)
        self._asked_at = time.monotonic()
        self._transport.write(self._startup.negotiation + _REQUEST_PASSWORD)

    def _read_password(self, wanted: Startup) -> None:
        if len(self._buffer) < frames.HEADER_SIZE:
            return
        kind, length = frames.HEADER.unpack_from(self._buffer)
        if kind != frames.PASSWORD or not 4 < length <= _MAX_PASSWORD:
            raise _Refused(_NO_PASSWORD)
        if len(self._buffer) < 1 + length:
            return
        password = bytes(self._buffer[frames.HEADER_SIZE : length])
        del self._buffer[: 1 + length]
        try:
            cluster, self._region, principal = self._reception.verify(self._name, wanted.user, password)
        except token.TokenRefused as refused:
            raise _Refused(_denied(refused.hint)) from None
        refusal = no_action(principal, wanted.user, cluster.arn)
        if refusal is not None:
            raise _Refused(_fatal(refusal))
        wanted.check()
        if wanted.user.startswith(INTERNAL_PREFIX):
            # The engine's own roles, its superuser among them, are nobody's.
            raise _Refused(_fatal(no_access(principal)))
        not_taken = cluster.quotas.take(cluster.limits)
        if not_taken is not None:
            raise _Refused(frames.error("FATAL", *not_taken.value))
        self._counted = cluster.quotas
        # What `sys.iam_session_user` tells.
        wanted = replace(wanted, settings=(*wanted.settings, (f"{INTERNAL_PREFIX}.principal", principal.arn)))
        self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._begin(cluster, principal, wanted))

    async def _begin(self, cluster: Cluster, principal: Principal, wanted: Startup) -> None:
        if not await self._meets_no_fault(cluster):
            return
        began = await self._authenticate()
        try:
            async with self._reception.opening:
                if wanted.user != ADMIN and not await cluster.trust.admits(wanted.user, principal):
                    self._refuse(_fatal(no_access(principal)))
                    return
            greeting = await self._reception.lender(cluster).greet(wanted)
        except BackendRefused as refused:
            self._refuse(_answer_to(refused, principal))
        except TimeoutError:
            self._refuse(_TOO_MANY)
        except OSError:
            _LOG.exception("no connection to the PostgreSQL of cluster %s", cluster.id)
            self._refuse(_NO_POSTGRES)
        else:
            await self._take_startup(began)
            self._start_session(cluster, wanted, principal, greeting)

    async def _meets_no_fault(self, cluster: Cluster) -> bool:
        """Let happen to the connection what a fault of the cluster wants; tell whether it goes on."""
        fault = cluster.faults.at_connect()
        if fault is None:
            return True
        if fault.refusal is not None:
            self._refuse(_fatal(fault.refusal))
        elif fault.cut:
            self.abort()
        elif fault.delay_s < math.inf:
            await asyncio.sleep(fault.delay_s)
            return True
        else:
            self._deadline.cancel()  # silence: nothing comes any more, not even an end
        return False

    async def _authenticate(self) -> float:
        """Take the time of authentication that the latency profile says; give when start-up begins."""
        if self._delays is not None:
            await asyncio.sleep(max(self._asked_at + self._delays.authentication_s - time.monotonic(), 0))
            self._transport.write(_AUTHENTICATED)
            self._authenticated = True
        return time.monotonic()

    async def _take_startup(self, began: float) -> None:
        if self._delays is not None:
            await asyncio.sleep(max(began + self._delays.startup_s - time.monotonic(), 0))

    def _start_session(self, cluster: Cluster, wanted: Startup, principal: Principal, greeting: Greeting) -> None:
        if self._transport.is_closing():
            return
        self._deadline.cancel()
        self._reception.logins.discard(self)
        pace = Pace(cluster.latency, self._region)
        hooks = [hook for factory in FACTORIES if (hook := factory(cluster, wanted.user)) is not None]
        hooks.insert(0, cluster.trust.hook(wanted.user, principal))
        reception = self._reception
        lender, adjudicator = reception.lender(cluster), reception.adjudicator(cluster)
        session = Session(
            cluster, reception.statements, wanted, lender, adjudicator, reception.ended, hooks, pace, reception.vigil
        )
        self._counted = None
        self._reception.begun(session)
        session.join(self._transport, reception.buffer)
        # A cancellation key of our own: a client's CancelRequest must not reach PostgreSQL.
        key = frames.message(frames.BACKEND_KEY_DATA, secrets.randbits(31).to_bytes(4, "big") + secrets.token_bytes(4))
        answer = [*greeting.messages, key, greeting.ready]
        if not self._authenticated:
            answer.insert(0, _AUTHENTICATED)
        self._transport.write(b"".join(answer))
        if self._buffer:
            session.frontend.data_received(bytes(self._buffer))
        self._transport.resume_reading()

    def _refuse(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)
            self._transport.close()

    def _too_late(self) -> None:
        if hasattr(self, "_transport"):
            self.abort()

    def abort(self) -> None:
        """End the connection without a word."""
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone before its session began."""
        self._deadline.cancel()
        self._reception.logins.discard(self)
        self._buffer.clear()
        if self._task is not None:
            self._task.cancel()
        if self._counted is not None:
            self._counted.closed()


def _region_of(cluster: Cluster, host: str, presented: token.Token) -> int:
    """Which of a cluster's Regions a client reaches: the host name says it, for `localhost` what its token is for."""
    for number, endpoint in enumerate(cluster.endpoints):
        if endpoint.host == host:
            return number
    for number, endpoint in enumerate(cluster.endpoints):
        if endpoint.host == presented.host_name or endpoint.region == presented.region:
            return number
    return 0


def _denied(hint: str) -> bytes:
    return frames.error("FATAL", *DENIED, hint=hint)


def _fatal(refusal: Refusal) -> bytes:
    return frames.error("FATAL", refusal.sqlstate, refusal.message, detail=refusal.detail, hint=refusal.hint)


def _answer_to(refused: BackendRefused, principal: Principal) -> bytes:
    """What DSQL would say where PostgreSQL refused a connection."""
    state = refused.fields.get("C")
    if state == b"28000":
        # No such role, or one without LOGIN.
        return _fatal(no_access(principal))
    if state == b"53300":
        return _TOO_MANY
    return frames.report(frames.ERROR_RESPONSE, refused.fields)
