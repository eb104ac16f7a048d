"""What connections cost the engine: memory of those that are held, time of a burst.

Run on a quiet machine: `pytest tests/perf/test_connections.py -s`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.load.burst import connect_burst
from pytest_dsql.local.client import Engine
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.local.postgres import SUPERUSER
from tests.local.engines import endpoint_of
from tests.plain_postgres import plain_postgres, tls_installation

#: What DSQL allows, but for a few that others of this machine may need.
HELD = 9_500
#: A burst as DSQL's bucket of new connections allows it.
BURST = 1_000

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach(options=EngineOptions(limits=Limits(connect_burst=100_000))) as running:
        yield running


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def backends(engine: Engine) -> int:
    """How many of PostgreSQL's processes serve sessions."""
    directory = str(engine.control.parent / "1")
    with psycopg.connect(host=directory, user=SUPERUSER, dbname="postgres") as superuser:
        row = superuser.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'admin'").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("held", [1_000, HELD])
def test_a_held_connection_costs_the_gateway_little_and_postgresql_nothing(engine: Engine, held: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < held + 1_000:
        pytest.skip(f"no {held} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    endpoint = endpoint_of(engine)
    tokens = TokenSource(endpoint)
    dial(endpoint, tokens)[0].close()
    before_kib = resident_kib(engine.pid)
    connections: list[psycopg.Connection[Any]] = []
    try:
        for _ in range(held):
            connection, _ = dial(endpoint, tokens)
            connections.append(connection)
            connection.execute("SELECT 1")
        each_kib = (resident_kib(engine.pid) - before_kib) / held
        serving = backends(engine)
        total_mib = resident_kib(engine.pid) / 1024
        print(f"\n{held:,} held: {each_kib:.1f} KiB each, gateway {total_mib:,.0f} MiB, {serving} PostgreSQL processes")
        assert connections[0].execute("SELECT 1").fetchone() == (1,)
        assert connections[-1].execute("SELECT 1").fetchone() == (1,)
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert total_mib < 1_536
    assert serving < 300


def test_a_burst_is_no_slower_than_postgresql_itself(engine: Engine) -> None:
    if tls_installation() is None:
        pytest.skip("no PostgreSQL with TLS on this machine")
    with plain_postgres(tls=True, settings={"max_connections": str(BURST + 50)}) as server:
        # In turn, so that both meet the same machine.
        stats = {
            name: connect_burst(endpoint, BURST)
            for _ in range(2)
            for name, endpoint in (("engine", endpoint_of(engine)), ("direct", Endpoint.from_dsn(server.dsn)))
        }
    seconds = {name: one.elapsed_ns / 1e9 for name, one in stats.items()}
    print(f"\na burst of {BURST:,}: {seconds['engine']:.2f} s through the engine, {seconds['direct']:.2f} s directly")
    assert all(one.succeeded == BURST for one in stats.values()), {name: one.refused for name, one in stats.items()}
    assert seconds["engine"] < 2 * seconds["direct"]
