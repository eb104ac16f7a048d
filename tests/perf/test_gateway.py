"""What the gateway costs: ratios of one run, through it and directly, on the same PostgreSQL.

Run on a quiet machine: `pytest tests/perf/test_gateway.py -s`.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local.account import choose_account
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.clusters import Clusters
from pytest_dsql.local.directories import runtime_base
from pytest_dsql.local.installation import find_installation
from tests.local.gateway.harness import REGION, sign
from tests.plain_postgres import plain_postgres, tls_installation

ROUNDS = 5
SECONDS = 3
ROWS = 5_000

needs_pgbench = pytest.mark.skipif(shutil.which("pgbench") is None, reason="this machine has no pgbench")
needs_tls = pytest.mark.skipif(tls_installation() is None, reason="this machine has no PostgreSQL that speaks TLS")

#: A gateway process: reads its cluster from the arguments and the secret from its input, tells its port, serves.
_SERVE = """
import asyncio, datetime, sys, uvloop
from pathlib import Path
from pytest_dsql.local.cluster import Cluster, Principal
from pytest_dsql.local.gateway.authority import CertificateAuthority
from pytest_dsql.local.gateway.server import Gateway
cluster_id, region, socket_path, directory, key = sys.argv[1:]
principal = Principal("arn:aws:iam::000000000000:role/perf", key, sys.stdin.readline().strip())
cluster = Cluster(cluster_id, region, socket_path, (principal,), datetime.date(2026, 10, 1))
class One:
    def by_host(self, sni): return cluster if sni == cluster.host else None
    def default(self): return cluster
    def all(self): return [cluster]
async def serve():
    gateway = Gateway(One(), CertificateAuthority(Path(directory)))
    print(await gateway.start(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await gateway.close()
uvloop.run(serve())
"""


@dataclass
class Sides:
    """The same PostgreSQL, directly over its unix socket and through the gateway: libpq parameters."""

    cluster: Cluster
    direct: dict[str, str]
    gateway_pid: int
    gateway: dict[str, str] = field(repr=False)  #: with a token


def environment(info: dict[str, str]) -> dict[str, str]:
    names = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    names |= {"password": "PGPASSWORD", "sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT"}
    return os.environ | {names[name]: value for name, value in info.items()}


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    directory = Path(tempfile.mkdtemp(prefix="p-", dir=runtime_base()))
    authority = Path(tempfile.mkdtemp(prefix="p-"))
    clusters = Clusters(
        directory, find_installation(), choose_account(), region=REGION, rules=date(2026, 10, 1), ended=print
    )
    try:
        cluster = clusters.add_default(None)
        principal = cluster.principals[0]
        socket_directory = str(Path(cluster.socket_path).parent)
        with psycopg.connect(
            host=socket_directory, user="pytest_dsql_engine", dbname="postgres", autocommit=True
        ) as owner:
            fill(owner)
        command = [sys.executable, "-c", _SERVE, cluster.id, REGION, cluster.socket_path, str(authority)]
        with subprocess.Popen(
            [*command, principal.access_key_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(principal.secret_access_key + "\n")
            process.stdin.flush()
            through = {
                "host": cluster.host,
                "hostaddr": "127.0.0.1",
                "port": process.stdout.readline().strip(),
                "user": "admin",
                "dbname": "postgres",
                "password": sign(principal, cluster.host, "DbConnectAdmin", expires=3600),
                "sslmode": "verify-full",
                "sslrootcert": str(authority / "root.crt"),
            }
            yield Sides(
                cluster, {"host": socket_directory, "user": "admin", "dbname": "postgres"}, process.pid, through
            )
    finally:
        clusters.close()
        shutil.rmtree(directory)
        shutil.rmtree(authority)


def fill(owner: psycopg.Connection[Any]) -> None:
    """pgbench's table of accounts, and one of as many rows as a large page of an application shows."""
    owner.execute("SET search_path = public")
    owner.execute("SET session_replication_role = replica")  # nobody counts what a transaction writes
    owner.execute("CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))")
    owner.execute("INSERT INTO pgbench_accounts SELECT n, 1, 0, '' FROM generate_series(1, 100000) AS n")
    owner.execute(
        "CREATE TABLE page AS SELECT n AS id, md5(n::text) AS name, repeat('x', n % 40) AS note, now() AS at"
        f" FROM generate_series(1, {ROWS}) AS n"
    )
    owner.execute("CREATE TABLE booked (aid int, other int, delta int)")
    owner.execute("GRANT ALL ON page, pgbench_accounts, booked TO PUBLIC")
    owner.execute("ANALYZE")


def pgbench(info: dict[str, str], clients: int) -> float:
    """Statements per second of one SELECT by key, prepared."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n")
        script.flush()
        run = subprocess.run(
            ["pgbench", "-n", "-M", "prepared", "-f", script.name, "-c", str(clients), "-T", str(SECONDS)],
            env=environment(info),
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"tps = ([0-9.]+)", run.stdout)
    assert found is not None, run.stdout + run.stderr
    return float(found[1])


def processor_us(pid: int) -> float:
    """The processor time of a process's first thread so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


#: Six statements, four of which write, as an application books an order.
_WRITING = """
\\set aid random(1, 100000)
\\set other random(1, 100000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_accounts SET abalance = abalance - 1 WHERE aid = :other;
INSERT INTO booked (aid, other, delta) VALUES (:aid, :other, 1);
SELECT abalance FROM pgbench_accounts WHERE aid = :other;
UPDATE pgbench_accounts SET filler = 'x' WHERE aid = :other;
COMMIT;
"""


def write_rate(info: dict[str, str]) -> float:
    """Transactions of `_WRITING` per second, 16 connections, prepared statements. Conflicts are rare."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_WRITING)
        script.flush()
        run = subprocess.run(
            [
                *("pgbench", "-n", "-M", "prepared", "-f", script.name, "-c", "16", "-T", str(SECONDS)),
                *("--max-tries", "10"),
            ],
            env=environment(info),
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"tps = ([0-9.]+)", run.stdout)
    assert found is not None, run.stdout + run.stderr
    return float(found[1])


def page_rate(info: dict[str, str]) -> float:
    """Results of 5,000 rows per second, read whole by libpq."""
    with psycopg.connect(**info) as connection:  # type: ignore[arg-type]  # libpq parameters by name
        pgconn: pq.abc.PGconn = connection.pgconn
        deadline = time.perf_counter() + SECONDS
        done = 0
        while time.perf_counter() < deadline:
            assert pgconn.exec_params(b"SELECT * FROM page", []).ntuples == ROWS
            done += 1
    return done / SECONDS


def ratio(measure: Callable[[dict[str, str]], float], info: dict[str, str], base: dict[str, str]) -> float:
    """The median of interleaved rounds of `info` over that of `base`."""
    first, second = [], []
    for _ in range(ROUNDS):
        second.append(measure(base))
        first.append(measure(info))
    print(f"\n{statistics.median(first):,.0f}/s against {statistics.median(second):,.0f}/s", end=" ")
    print(f"= {statistics.median(first) / statistics.median(second):.2f}")
    return statistics.median(first) / statistics.median(second)


@needs_pgbench
@needs_tls
def test_statements_per_second_against_a_postgresql_that_speaks_tls(sides: Sides) -> None:
    with plain_postgres(tls=True) as plain:
        with psycopg.connect(plain.dsn, autocommit=True) as owner:
            fill(owner)
        found = ratio(lambda info: pgbench(info, 16), sides.gateway, plain.conninfo())
        assert found >= 0.55


@needs_pgbench
def test_statements_per_second_against_the_same_postgresql(sides: Sides) -> None:
    """The other side has neither TCP nor TLS to pay for."""
    found = ratio(lambda info: pgbench(info, 16), sides.gateway, sides.direct)
    assert found >= 0.25


@needs_pgbench
@needs_tls
def test_writing_transactions_against_a_postgresql_that_speaks_tls(sides: Sides) -> None:
    with plain_postgres(tls=True) as plain:
        with psycopg.connect(plain.dsn, autocommit=True) as owner:
            fill(owner)
        found = ratio(write_rate, sides.gateway, plain.conninfo())
        assert found >= 0.4


@needs_pgbench
@needs_tls
def test_time_added_to_a_round_trip(sides: Sides) -> None:
    with plain_postgres(tls=True) as plain:
        with psycopg.connect(plain.dsn, autocommit=True) as owner:
            fill(owner)
        rounds = []
        for _ in range(ROUNDS):
            before = processor_us(sides.gateway_pid)
            rate = pgbench(sides.gateway, 1)
            used = (processor_us(sides.gateway_pid) - before) / (rate * SECONDS)
            rounds.append((1e6 / rate, 1e6 / pgbench(plain.conninfo(), 1), used))
    through, directly, used = (statistics.median(part) for part in zip(*rounds, strict=True))
    added = statistics.median(one - other for one, other, _ in rounds)
    print(f"\nadded to a round trip: {added:.0f} us ({through:.0f} us against {directly:.0f} us)", end="; ")
    print(f"processor time of the gateway: {used:.0f} us")
    assert added <= 110


@needs_pgbench
def test_a_gateway_with_nothing_to_do_sleeps(sides: Sides) -> None:
    """It stays awake only where the next message is near."""
    with psycopg.connect(**sides.gateway) as connection:  # type: ignore[arg-type]  # libpq parameters by name
        for _ in range(1000):
            connection.execute("SELECT 1", prepare=True)
        before = processor_us(sides.gateway_pid)
        time.sleep(2)
        silent = (processor_us(sides.gateway_pid) - before) / 2e6
        before = processor_us(sides.gateway_pid)
        for _ in range(200):
            connection.execute("SELECT 1", prepare=True)
            time.sleep(0.005)
        thinking = (processor_us(sides.gateway_pid) - before) / 200
    print(
        f"\nprocessor time of the gateway: {silent:.2%} of a core when silent, {thinking:.0f} us a statement every 5 ms"
    )
    assert silent < 0.01
    assert thinking < 1000


def test_large_results_against_the_same_postgresql(sides: Sides) -> None:
    found = ratio(page_rate, sides.gateway, sides.direct)
    assert found >= 0.6


@needs_tls
def test_large_results_against_a_postgresql_that_speaks_tls(sides: Sides) -> None:
    with plain_postgres(tls=True) as plain:
        with psycopg.connect(plain.dsn, autocommit=True) as owner:
            fill(owner)
        found = ratio(page_rate, sides.gateway, plain.conninfo())
        assert found >= 0.6


def test_memory_of_a_connection(sides: Sides) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{sides.gateway_pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    held = [psycopg.connect(**sides.gateway) for _ in range(20)]  # type: ignore[arg-type]  # libpq parameters by name
    try:
        before = resident()
        held += [psycopg.connect(**sides.gateway) for _ in range(200)]  # type: ignore[arg-type]
        for connection in held:
            connection.execute("SELECT 1")
        each = (resident() - before) / 200
    finally:
        for connection in held:
            connection.close()
    print(f"\nmemory of a connection in the gateway: {each / 1024:.0f} KiB")
    assert each < 128 * 1024


def test_a_thousand_connections_at_once(sides: Sides) -> None:
    """Asked for in one go from one thread, held until the last one is there."""
    import selectors

    info = " ".join(f"{name}='{value}'" for name, value in sides.gateway.items()).encode()
    started = time.perf_counter()
    connections = [pq.PGconn.connect_start(info) for _ in range(1000)]
    selector = selectors.DefaultSelector()
    wanted = dict.fromkeys(connections, pq.PollingStatus.WRITING)
    try:
        while wanted:
            for connection, status in wanted.items():
                mask = selectors.EVENT_READ if status == pq.PollingStatus.READING else selectors.EVENT_WRITE
                selector.register(connection.socket, mask, connection)
            ready = [key.data for key, _ in selector.select(30)]
            for connection in list(wanted):
                selector.unregister(connection.socket)
            assert ready, f"{len(wanted)} connections had no answer"
            for connection in ready:
                status = connection.connect_poll()
                assert status != pq.PollingStatus.FAILED, connection.error_message
                if status == pq.PollingStatus.OK:
                    del wanted[connection]
                else:
                    wanted[connection] = status
        seconds = time.perf_counter() - started
        print(f"\n1,000 connections in {seconds:.1f} s")
    finally:
        for connection in connections:
            connection.finish()
    assert seconds < 4
