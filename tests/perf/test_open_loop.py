"""Open loop: how late requests leave, and how long they queue. On a busy machine both say so instead of passing.

`pytest tests/perf/test_open_loop.py -s` shows the figures.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.load.statistics import distribution
from pytest_dsql.transaction import Context, Mix, Steps, Transaction
from tests.load.conftest import cell_plan, fake_endpoint
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation

MS = 1_000_000


def statement(sql: str) -> Transaction:
    def steps(ctx: Context) -> Steps:
        yield sql, (ctx.operation_id,)
        return None

    return Transaction(steps, "read", "statement", block=False)


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    if tls_installation() is None or shutil.which("pgbench") is None:
        pytest.skip("needs a PostgreSQL with TLS installed on this machine")
    with plain_postgres(tls=True, settings={"max_connections": "100"}) as running:
        psycopg.connect(running.dsn).close()
        yield running


@pytest.fixture(scope="module")
def slow_port() -> Iterator[int]:
    """A server that answers each statement after the time it is told."""
    script = Path(__file__).parent.parent / "load" / "fake_server.py"
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    yield int(process.stdout.readline())
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def show(measured: Measurement) -> None:
    (samples,) = measured.samples.values()
    wait, service = distribution(samples.wait_ns), distribution(samples.service_ns)
    health = measured.generator
    assert wait is not None
    assert service is not None
    lag = health.schedule_lag_p99_ns or 0
    print(
        f"\n{len(samples) / measured.duration_s:,.0f}/s: CPU {health.cpu:.0%}, run-queue wait {health.runqueue_wait}, "
        f"schedule lag p99 {lag / MS:.2f} ms, wait p50/p99/p99.9 {wait.p50 / MS:.2f}/{wait.p99 / MS:.2f}/"
        f"{wait.p999 / MS:.2f} ms, service p50/p99 {service.p50 / MS:.2f}/{service.p99 / MS:.2f} ms"
    )


def test_five_thousand_requests_a_second_leave_on_time(server: PlainPostgres) -> None:
    endpoint = Endpoint(
        host=server.host,
        hostaddr="127.0.0.1",
        port=server.port,
        user=server.user,
        dbname=server.dbname,
        sslmode="verify-full",
        sslrootcert=server.sslrootcert,
        auth=PasswordAuth(server.password),
        dialect="postgresql",
    )
    mix = Mix({statement("SELECT $1::text"): 1})
    plan = cell_plan(endpoint, mix, arrival=Arrival("poisson", 5_000.0), connections=32, warmup_s=1.0, window_s=5.0)
    measured = run_cell(plan)
    show(measured)
    (samples,) = measured.samples.values()
    assert samples.count(Outcome.OK) == len(samples)
    assert measured.generator.schedule_lag_p99_ns is not None
    assert measured.generator.schedule_lag_p99_ns < 2 * MS


def test_requests_hardly_queue_at_four_fifths_of_the_connections(slow_port: int) -> None:
    connections = 64
    rate = 0.8 * connections / 0.028
    mix = Mix({statement("SELECT /*delay=28*/ $1"): 1})
    plan = cell_plan(
        fake_endpoint(slow_port),
        mix,
        arrival=Arrival("poisson", rate),
        connections=connections,
        warmup_s=1.0,
        window_s=5.0,
    )
    measured = run_cell(plan)
    show(measured)
    assert measured.generator.connection_wait_p99_ns < 5 * MS
