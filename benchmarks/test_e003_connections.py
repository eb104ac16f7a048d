"""E003: what authentication, new connections and bursts of them cost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Barrier
from time import perf_counter
from typing import Any

import pytest

from pytest_dsql import Endpoint, Mix
from pytest_dsql.connect.credentials import forget_credentials
from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import IamAuth
from pytest_dsql.connect.token import TokenSource, sign_token
from pytest_dsql.errors import ConnectionFailed, ErrorClass
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.slo.connecting_limit import Connecting, what_limits_connecting
from pytest_dsql.workloads.orders.transactions import product_read
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql


@pytest.fixture
def product_reads(dsql_orders: Orders) -> Mix:
    """A mix of product reads only."""
    return Mix({product_read: 1.0}, workload=dsql_orders)


def test_token_signing(dsql_results: ResultsFile, dsql_endpoint: Endpoint, dsql_plan: Plan, benchmark: Any) -> None:
    """Sign tokens one after the other; the first apart, because it looks up the credentials."""
    if not isinstance(dsql_endpoint.auth, IamAuth):
        pytest.skip("this target takes a password: there is no token to sign")
    started = perf_counter()
    sign_token(dsql_endpoint)
    first_ms = (perf_counter() - started) * 1e3
    benchmark.pedantic(sign_token, args=(dsql_endpoint,), rounds=dsql_plan.signatures)
    signed_ms = [1e3 * seconds for seconds in benchmark.stats.stats.data] if benchmark.stats else []
    if signed_ms:
        dsql_results.put_experiment(
            "E003 token signing",
            {"first_ms": first_ms, "n": len(signed_ms), "p50_ms": median(signed_ms), "max_ms": max(signed_ms)},
        )


def test_sequential_connections(dsql_connect: Callable[[], Any], dsql_plan: Plan, benchmark: Any) -> None:
    """Connect, `SELECT 1`, close: one after the other."""

    def connect_once() -> object:
        with dsql_connect() as connection:
            return connection.execute("SELECT 1").fetchone()

    assert benchmark.pedantic(connect_once, rounds=dsql_plan.sequential) == (1,)


def test_kept_connections_beat_new_ones(dsql_load: Load, dsql_plan: Plan, product_reads: Mix) -> None:
    """The same reads over kept connections, and with a new connection for each."""
    kept = dsql_load.closed(
        product_reads,
        connections=dsql_plan.connection_workers,
        warmup=dsql_plan.connection_warmup_s,
        duration=dsql_plan.connection_window_s,
    )
    new = dsql_load.churn(product_reads, connections=dsql_plan.connection_workers)
    kept.assert_connected()
    new.assert_connected()
    assert kept.tps > new.tps


def test_what_limits_new_connections(
    dsql_load: Load, dsql_plan: Plan, product_reads: Mix, dsql_results: ResultsFile
) -> None:
    """A new connection for each read, by one worker process and by several: what limits their rate."""
    runs = []
    for workers in dsql_plan.connecting_workers:
        cell = dsql_load.churn(
            product_reads,
            connections=dsql_plan.connection_workers,
            duration=dsql_plan.contention_window_s,
            workers=workers,
        )
        cell.assert_connected()
        made = cell.connect
        runs.append(
            Connecting(
                workers=workers,
                rate_per_s=made.succeeded / cell.measurement.duration_s,
                cpu=cell.generator.cpu,
                refused=made.refused,
            )
        )
    found = what_limits_connecting(*runs)
    dsql_results.put_experiment(
        "E003 rate of new connections",
        {
            "limited_by": found.limited_by,
            "reason": found.reason,
            **{f"per_s_with_{run.workers}": run.rate_per_s for run in runs},
            **{f"cpu_with_{run.workers}": run.cpu for run in runs},
        },
    )


def test_burst(dsql_load: Load, burst: int) -> None:
    """Many connections asked for at once: all are made, or their refusal is explained by a limit of the target."""
    dsql_load.connect_burst(burst).assert_connected()


def test_sequential_connections_after_the_burst(dsql_load: Load, dsql_plan: Plan) -> None:
    """The target is itself again right after the largest burst."""
    dsql_load.connect_burst(max(dsql_plan.bursts)).assert_connected()
    dsql_load.sequential_connects(20).assert_connected()


def test_256_first_connections_sign_once(dsql_results: ResultsFile, dsql_endpoint: Endpoint) -> None:
    """The published harness lost its first connections when 256 of them looked up credentials at once."""
    if not isinstance(dsql_endpoint.auth, IamAuth):
        pytest.skip("this target takes a password: there is no token to sign")
    forget_credentials()
    tokens = TokenSource(dsql_endpoint)
    together = Barrier(256, timeout=60.0)

    def connect() -> None:
        together.wait()
        try:
            connection, _phases = dial(dsql_endpoint, tokens, timeout_s=60.0)
        except ConnectionFailed as refused:
            if refused.error_class is not ErrorClass.LIMIT:  # of new connections per second: no fault of the token
                raise
        else:
            connection.close()

    with ThreadPoolExecutor(256) as threads:
        for one in [threads.submit(connect) for _ in range(256)]:
            one.result()
    dsql_results.put_experiment("E003 first connections", {"connections": 256, "tokens_signed": tokens.signed})
    assert tokens.signed == 1
