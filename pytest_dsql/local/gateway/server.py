"""The listener: accepts connections on 127.0.0.1, leads each through TLS to its login, and ends them all at the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import time
from typing import Final, final

from pytest_dsql.local.gateway.ages import Ages
from pytest_dsql.local.gateway.authority import CertificateAuthority
from pytest_dsql.local.gateway.directory import ClusterDirectory
from pytest_dsql.local.gateway.hello import Greeting, greet, server_name
from pytest_dsql.local.gateway.lifetimes import Lifetimes
from pytest_dsql.local.gateway.login import Login, Reception
from pytest_dsql.local.gateway.session import Session
from pytest_dsql.local.gateway.statements import Judge, Statements
from pytest_dsql.local.gateway.tls import ServerNames
from pytest_dsql.local.latency.control import ConnectDelays

_LOG: Final = logging.getLogger(__name__)

#: Nothing but this machine can connect.
ADDRESS: Final = "127.0.0.1"

#: Connections that may wait to be accepted (the kernel's own limit, net.core.somaxconn, is 4,096 by default).
_BACKLOG: Final = 4_096
#: Connections accepted before the loop serves others again.
_ACCEPTED_AT_ONCE: Final = 64
#: Open files the gateway asks for: two for each of 10,000 connections.
_OPEN_FILES: Final = 32_768
#: Seconds to wait before accepting again after the process ran out of files.
_PAUSE_S: Final = 0.1
_TLS_SHUTDOWN_S: Final = 2.0
#: Seconds that sessions get to end by themselves when the gateway closes.
_CLOSING_S: Final = 3.0


@final
class Gateway:
    """Serves the clusters of a directory on one port.

    `judge` decides about statements (by default the dialect's), `handshake_timeout_s` is how long a client may take
    from its first byte to its password.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        authority: CertificateAuthority,
        *,
        judge: Judge | None = None,
        handshake_timeout_s: float = 30.0,
    ) -> None:
        if judge is None:
            from pytest_dsql.local import dialect

            judge = dialect.judge
        self._names = ServerNames(directory, authority)
        self._timeout_s = handshake_timeout_s
        self._greetings: set[asyncio.Task[None]] = set()
        self._sessions: set[Session] = set()
        self._lifetimes: dict[str, Lifetimes] = {}  #: by the cluster's id
        self._ages: dict[str, Ages] = {}  #: likewise
        self._idle = asyncio.Event()
        self._listener: socket.socket | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._reception = Reception(directory, self._names, Statements(judge), self._begun, self._ended)

    @property
    def sessions(self) -> int:
        """Sessions that are open now."""
        return len(self._sessions)

    async def start(self, port: int = 0) -> int:
        """Listen on `port` of 127.0.0.1, any free one for 0, and give the port. Raises OSError when it is taken."""
        loop = asyncio.get_running_loop()
        _raise_file_limit()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((ADDRESS, port))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        loop.add_reader(listener, self._accept, loop, listener)
        address: tuple[str, int] = listener.getsockname()
        return address[1]

    async def close(self) -> None:
        """Stop listening and end every session; returns when the last one has ended."""
        loop = asyncio.get_running_loop()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for lifetimes in self._lifetimes.values():
            lifetimes.close()
        for ages in self._ages.values():
            ages.close()
        for lender in self._reception.lenders.values():
            lender.close()
        for task in self._greetings:
            task.cancel()
        if self._greetings:
            await asyncio.gather(*self._greetings, return_exceptions=True)
        for login in list(self._reception.logins):
            login.abort()
        for session in list(self._sessions):
            session.shut()
        if self._sessions:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _CLOSING_S)
        for session in list(self._sessions):
            session.abort()
        for adjudicator in self._reception.adjudicators.values():
            adjudicator.close()

    def _begun(self, session: Session) -> None:
        self._sessions.add(session)
        cluster = session.cluster
        if cluster.id not in self._lifetimes:
            self._lifetimes[cluster.id] = Lifetimes(cluster)
            self._ages[cluster.id] = Ages(cluster)
        self._lifetimes[cluster.id].begun(session)
        self._ages[cluster.id].begun(session)

    def _ended(self, session: Session) -> None:
        self._sessions.discard(session)
        self._lifetimes[session.cluster.id].ended(session)
        self._ages[session.cluster.id].ended(session)
        self._reception.lenders[session.cluster.id].forget(session.loan)
        session.cluster.quotas.closed()
        if not self._sessions:
            self._idle.set()

    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                raw, _address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # The waiting connections stay in the backlog; without a pause the loop would spin on them.
                _LOG.warning("no connection accepted for %.1f s: %s", _PAUSE_S, error.strerror)
                loop.remove_reader(listener)
                self._resuming = loop.call_later(_PAUSE_S, loop.add_reader, listener, self._accept, loop, listener)
                return
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(raw))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _serve(self, raw: socket.socket) -> None:
        """Lead a connection to its login. Whatever the client does, it can only end its own connection."""
        deadline = time.monotonic() + self._timeout_s
        try:
            async with asyncio.timeout(self._timeout_s):
                greeting = await greet(raw)
            if greeting is Greeting.DONE:
                raw.close()
                return
            delays = await self._connect_delays(raw, deadline)
            left_s = max(deadline - time.monotonic(), 0.001)
            direct = greeting is Greeting.DIRECT_TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Login(self._reception, left_s, direct=direct, delays=delays),
                raw,
                ssl=self._names.context,
                ssl_handshake_timeout=left_s,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
            )
        except OSError:
            # Broken off, too slow, or no TLS (ssl.SSLError is an OSError): there is nobody to tell.
            raw.close()
        except BaseException:
            raw.close()
            raise

    async def _connect_delays(self, raw: socket.socket, deadline: float) -> ConnectDelays | None:
        """Say how long the login's phases take, and take those of TCP and TLS; None where nothing is held back."""
        directory = self._reception.directory
        if not any(cluster.latency.active for cluster in directory.all()):
            return None
        async with asyncio.timeout(deadline - time.monotonic()):
            host = await server_name(raw) or ""
            cluster = directory.by_host(host) or directory.default()
            if not cluster.latency.active:
                return None
            hosts = [endpoint.host for endpoint in cluster.endpoints]
            delays = ConnectDelays(cluster.latency, hosts.index(host) if host in hosts else 0)
            await asyncio.sleep(delays.tls_s)
        return delays


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS allows fewer than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
