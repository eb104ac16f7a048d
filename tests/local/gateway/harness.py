"""A gateway in this process and what tests of it need: a judge whose few rules they know, tokens, waiting."""

from __future__ import annotations

import asyncio
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Self

import psycopg
import uvloop
from botocore.session import Session as BotocoreSession
from psycopg import pq

from pytest_dsql.local.cluster import Cluster, Principal
from pytest_dsql.local.dialect.judgement import Judgement, Part, Refusal
from pytest_dsql.local.gateway import frames, startup
from pytest_dsql.local.gateway.authority import CertificateAuthority
from pytest_dsql.local.gateway.server import Gateway
from pytest_dsql.local.roles import Trust

REGION = "eu-central-1"
REFUSAL = Refusal("0A000", "unsupported statement: Lock", "as on DSQL", "do without")


COPY_IN = re.compile(r"COPY .* FROM STDIN", re.IGNORECASE)


def few_rules(sql: str, rules: date) -> Judgement:
    """Split at semicolons; refuse LOCK, rewrite and re-tag INDEX ASYNC, fail on BROKEN."""
    if "BROKEN" in sql:
        raise RuntimeError("a fault of the judge")
    texts = [text for text in sql.split(";") if text.strip()] or [sql]
    parts = []
    for number, text in enumerate(texts):
        end = ";" if number < len(texts) - 1 else ""
        if text.strip().upper().startswith("LOCK"):
            parts.append(Part(text + end, refusal=REFUSAL))
        elif "INDEX ASYNC" in text:
            parts.append(Part(f"SELECT 'abc' AS job_id{end}", tag="CREATE INDEX"))
        else:
            parts.append(Part(text + end, kind="dml" if COPY_IN.match(text) else "other"))
    unchanged = all(part.refusal is None and part.tag is None for part in parts)
    return Judgement(tuple(parts), unchanged)


class OneCluster:
    """A directory with one cluster, which is the default one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def by_host(self, sni: str) -> Cluster | None:
        return self.cluster if sni == self.cluster.host else None

    def all(self) -> list[Cluster]:
        return [self.cluster]

    def default(self) -> Cluster:
        return self.cluster


@dataclass
class RunningGateway:
    """A gateway that serves in a thread, and how to reach it."""

    gateway: Gateway
    loop: asyncio.AbstractEventLoop
    port: int
    cluster: Cluster
    root_file: Path

    @property
    def principal(self) -> Principal:
        return self.cluster.principals[0]

    def token(
        self, action: str = "DbConnectAdmin", *, host: str | None = None, expires: int = 900, region: str = REGION
    ) -> str:
        return sign(self.principal, host or self.cluster.host, action, expires=expires, region=region)

    def conninfo(self, **changes: Any) -> dict[str, Any]:
        user = changes.get("user", "admin")
        if "password" not in changes:
            changes["password"] = self.token("DbConnectAdmin" if user == "admin" else "DbConnect")
        return {
            "host": self.cluster.host,
            "hostaddr": "127.0.0.1",
            "port": self.port,
            "user": user,
            "dbname": "postgres",
            "sslmode": "verify-full",
            "sslrootcert": str(self.root_file),
            "connect_timeout": 60,
        } | changes

    def connect(self, **changes: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.conninfo(**changes), autocommit=True)

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the gateway's event loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def wait_sessions(self, count: int) -> None:
        """Return when the gateway has so many sessions; fail when it never has."""
        wait_until(lambda: self.call(lambda: self.gateway.sessions) == count)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Return when a condition holds; fail when it doesn't within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def next_result(pgconn: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """The next result. libpq's own waiting would hold the interpreter's lock, and with it stop the gateway's thread."""
    with selectors.DefaultSelector() as selector:
        selector.register(pgconn.socket, selectors.EVENT_READ)
        pgconn.flush()
        while pgconn.is_busy():
            assert selector.select(60), "no answer in time"
            pgconn.consume_input()
    return pgconn.get_result()


def ask(pgconn: pq.abc.PGconn, send: str, *arguments: Any) -> pq.abc.PGresult:
    """Send with one of libpq's `send_...` functions, and give the one result."""
    getattr(pgconn, send)(*arguments)
    result = next_result(pgconn)
    assert result is not None
    assert next_result(pgconn) is None
    return result


def pipeline_results(pgconn: pq.abc.PGconn, syncs: int) -> list[pq.abc.PGresult]:
    """The results of a pipeline up to so many Syncs, these left out."""
    found = []
    while syncs:
        result = next_result(pgconn)
        if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
            syncs -= 1
        elif result is not None:
            found.append(result)
    return found


@cache  # a client reads the service's model from disk: a hundred times the work of a token
def _signer(principal: Principal, region: str) -> Any:
    session = BotocoreSession()
    session.set_credentials(principal.access_key_id, principal.secret_access_key, principal.session_token)
    return session.create_client("dsql", region_name=region)


def sign(principal: Principal, host: str, action: str, *, expires: int = 900, region: str = REGION) -> str:
    """A token as botocore makes it."""
    client = _signer(principal, region)
    generate = {
        "DbConnectAdmin": client.generate_db_connect_admin_auth_token,
        "DbConnect": client.generate_db_connect_auth_token,
    }[action]
    return str(generate(host, region, expires))


def run_gateway(cluster: Cluster, directory: Path, **options: Any) -> Iterator[RunningGateway]:
    """Serve in a thread of its own."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gateway")
    thread.start()

    async def start() -> tuple[Gateway, CertificateAuthority, int]:
        authority = CertificateAuthority(directory)
        cluster.trust = Trust(cluster.socket_path)  # what it knows belongs to one event loop
        gateway = Gateway(OneCluster(cluster), authority, judge=options.pop("judge", few_rules), **options)
        return gateway, authority, await gateway.start()

    try:
        gateway, authority, port = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        try:
            yield RunningGateway(gateway, loop, port, cluster, authority.root_file)
        finally:
            asyncio.run_coroutine_threadsafe(gateway.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def direct(cluster: Cluster, user: str = "pytest_dsql_engine") -> psycopg.Connection[Any]:
    """A connection to the cluster's PostgreSQL without the gateway."""
    directory = str(Path(cluster.socket_path).parent)
    return psycopg.connect(host=directory, user=user, dbname="postgres", autocommit=True)


class RawClient:
    """A client that speaks the protocol by hand, over TLS."""

    def __init__(
        self, served: RunningGateway, *, sni: str | None = "cluster", alpn: str | None = None, direct: bool = False
    ) -> None:
        self.served = served
        raw = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not direct:
            raw.sendall(startup.PREFIX.pack(8, startup.SSL_REQUEST))
            assert raw.recv(1) == b"S"
        context = ssl.create_default_context(cafile=str(served.root_file))
        host = served.cluster.host if sni == "cluster" else sni
        if host is None or host == "unknown.example":
            context.check_hostname = False
        if alpn is not None:
            context.set_alpn_protocols([alpn])
        self.socket = context.wrap_socket(raw, server_hostname=host)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def startup(self, **settings: str) -> None:
        """Send a startup packet."""
        payload = b"".join(f"{name}\0{value}\0".encode() for name, value in settings.items())
        self.send(frames.packet(startup.PROTOCOL_3_0.to_bytes(4, "big") + payload + b"\0"))

    def password(self, token: str) -> None:
        self.send(frames.message(frames.PASSWORD, token.encode() + b"\0"))

    def logged_in(self, user: str = "admin", **settings: str) -> RawClient:
        """Go through the whole login."""
        self.startup(user=user, database="postgres", **settings)
        assert self.frame() == ("R", b"\0\0\0\3")
        self.password(self.served.token("DbConnectAdmin" if user == "admin" else "DbConnect"))
        self.until_ready()
        return self

    def frame(self) -> tuple[str, bytes]:
        """The next message of the server."""
        while True:
            if len(self._buffer) >= 5:
                kind, length = frames.HEADER.unpack_from(self._buffer)
                if len(self._buffer) > length:
                    payload = self._buffer[5 : 1 + length]
                    self._buffer = self._buffer[1 + length :]
                    return chr(kind), payload
            part = self.socket.recv(65_536)
            assert part, f"the connection ended after {self._buffer!r}"
            self._buffer += part

    def until_ready(self) -> list[tuple[str, bytes]]:
        """The messages up to the next ReadyForQuery, it included."""
        found = [self.frame()]
        while found[-1][0] != "Z":
            found.append(self.frame())
        return found

    def error(self) -> dict[str, str]:
        """The fields of the next message, which must be an error."""
        kind, payload = self.frame()
        assert kind == "E", (kind, payload)
        return {name: value.decode() for name, value in frames.fields(payload).items()}

    def expect_end(self) -> bytes:
        """What comes until the server closes the connection."""
        found = self._buffer
        try:
            while part := self.socket.recv(65_536):
                found += part
        except (ConnectionResetError, ssl.SSLEOFError):
            pass
        return found
