"""A gateway in this process and what tests of it need: a judge whose few rules they know, tokens, waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import uvloop
from botocore.session import Session as BotocoreSession

from pytest_dsql.local.cluster import Cluster, Principal
from pytest_dsql.local.dialect.judgement import Judgement, Part, Refusal
from pytest_dsql.local.gateway.authority import CertificateAuthority
from pytest_dsql.local.gateway.server import Gateway

REGION = "eu-central-1"
REFUSAL = Refusal("0A000", "unsupported statement: Lock", "as on DSQL", "do without")


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
            parts.append(Part(text + end))
    unchanged = all(part.refusal is None and part.tag is None for part in parts)
    return Judgement(tuple(parts), unchanged)


class OneCluster:
    """A directory with one cluster, which is the default one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def by_host(self, sni: str) -> Cluster | None:
        return self.cluster if sni == self.cluster.host else None

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
        return {
            "host": self.cluster.host,
            "hostaddr": "127.0.0.1",
            "port": self.port,
            "user": user,
            "dbname": "postgres",
            "password": self.token("DbConnectAdmin" if user == "admin" else "DbConnect"),
            "sslmode": "verify-full",
            "sslrootcert": str(self.root_file),
            "connect_timeout": 10,
        } | changes

    def connect(self, **changes: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.conninfo(**changes), autocommit=True)

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the gateway's event loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def wait_sessions(self, count: int) -> None:
        """Return when the gateway has so many sessions; fail after some seconds."""
        wait_until(lambda: self.call(lambda: self.gateway.sessions) == count)


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    """Return when a condition holds; fail when it doesn't within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def sign(principal: Principal, host: str, action: str, *, expires: int = 900, region: str = REGION) -> str:
    """A token as botocore makes it."""
    session = BotocoreSession()
    session.set_credentials(principal.access_key_id, principal.secret_access_key, principal.session_token)
    client = session.create_client("dsql", region_name=region)
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
        gateway = Gateway(OneCluster(cluster), authority, judge=options.pop("judge", few_rules), **options)
        return gateway, authority, await gateway.start()

    try:
        gateway, authority, port = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        try:
            yield RunningGateway(gateway, loop, port, cluster, authority.root_file)
        finally:
            asyncio.run_coroutine_threadsafe(gateway.close(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def direct(cluster: Cluster, user: str = "pytest_dsql_engine") -> psycopg.Connection[Any]:
    """A connection to the cluster's PostgreSQL without the gateway."""
    directory = str(Path(cluster.socket_path).parent)
    return psycopg.connect(host=directory, user=user, dbname="postgres", autocommit=True)
