"""E003: what authentication, new connections and bursts of them cost."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
from pytest_dsql.experiment.pool_study import use_pool
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.slo.connecting_limit import Connecting, what_limits_connecting
from pytest_dsql.targets.target import Target
from pytest_dsql.workloads.orders.transactions import PRODUCT_WITH_STOCK, product_read
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql

Note = Callable[[str, Mapping[str, Any]], None]


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the value of rank ceil(share x n), as every percentile here."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


@pytest.fixture
def product_reads(dsql_orders: Orders) -> Mix:
    """A mix of product reads only."""
    return Mix({product_read: 1.0}, workload=dsql_orders)


def test_token_signing(note: Note, dsql_endpoint: Endpoint, dsql_plan: Plan, benchmark: Any) -> None:
    """Sign tokens one after the other; the first apart, because it looks up the credentials."""
    if not isinstance(dsql_endpoint.auth, IamAuth):
        pytest.skip("this target takes a password: there is no token to sign")
    started = perf_counter()
    sign_token(dsql_endpoint)
    first_ms = (perf_counter() - started) * 1e3
    benchmark.pedantic(sign_token, args=(dsql_endpoint,), rounds=dsql_plan.signatures)
    signed_ms = [1e3 * seconds for seconds in benchmark.stats.stats.data] if benchmark.stats else []
    if signed_ms:
        note(
            "E003 token signing",
            {
                "first_ms": first_ms,
                "n": len(signed_ms),
                "p50_ms": median(signed_ms),
                "p95_ms": nearest_rank(signed_ms, 0.95),
                "max_ms": max(signed_ms),
            },
        )


def test_sequential_connections(dsql_connect: Callable[[], Any], dsql_plan: Plan, benchmark: Any, note: Note) -> None:
    """Connect, `SELECT 1`, close: one after the other."""

    def connect_once() -> object:
        with dsql_connect() as connection:
            return connection.execute("SELECT 1").fetchone()

    assert benchmark.pedantic(connect_once, rounds=dsql_plan.sequential) == (1,)
    took_ms = [1e3 * seconds for seconds in benchmark.stats.stats.data] if benchmark.stats else []
    if took_ms:
        shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
        figures = {name: nearest_rank(took_ms, share) for name, share in shares.items()}
        note("E003 sequential connections", {"n": len(took_ms), **figures})


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


def test_what_limits_new_connections(dsql_load: Load, dsql_plan: Plan, product_reads: Mix, note: Note) -> None:
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
    note(
        "E003 rate of new connections",
        {
            "limited_by": found.limited_by,
            "reason": found.reason,
            **{f"per_s_with_{run.workers}": run.rate_per_s for run in runs},
            **{f"cpu_with_{run.workers}": run.cpu for run in runs},
        },
    )


def test_application_tasks_share_a_pool(
    dsql_target: Target, dsql_orders: Orders, dsql_plan: Plan, note: Note, tasks: int, pool: int
) -> None:
    """Tasks of an asyncio application read products over a psycopg_pool: what they get done, and how long they wait."""
    use = use_pool(
        dsql_target.endpoint,
        dsql_target.tokens,
        tasks=tasks,
        connections=pool,
        duration_s=dsql_plan.pool_window_s,
        statement=PRODUCT_WITH_STOCK.replace("$1", "%s").encode(),
        parameters=lambda rng: (rng.randrange(dsql_orders.scale.products),),
        seed=dsql_orders.seed,
    )
    note(f"E003 {tasks} tasks, pool of {pool}", use.figures())
    assert use.requests >= tasks


def test_memory_of_held_connections(
    dsql_connect: Callable[[], Any], dsql_local: LocalControls, dsql_plan: Plan, note: Note
) -> None:
    """What connections cost while they are held, on both sides: the client's process and the engine's gateway."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is read from /proc")
    held = max(dsql_plan.bursts) // 2
    pids = {"client": "self", "gateway": str(dsql_local.engine.pid)}
    dsql_connect()
    before = {side: resident_kib(pid) for side, pid in pids.items()}
    connections = [dsql_connect() for _ in range(held)]
    each = {f"{side}_kib_each": (resident_kib(pid) - before[side]) / held for side, pid in pids.items()}
    assert connections[-1].execute("SELECT 1").fetchone() == (1,)
    note("E003 memory of held connections", {"held": held, **each})
    assert each["gateway_kib_each"] < 1_024


def resident_kib(pid: str) -> float:
    """Return what a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def test_burst(dsql_load: Load, burst: int) -> None:
    """Many connections asked for at once: all are made, or their refusal is explained by a limit of the target."""
    dsql_load.connect_burst(burst).assert_connected()


def test_sequential_connections_after_the_burst(dsql_load: Load, dsql_plan: Plan) -> None:
    """The target is itself again right after the largest burst."""
    dsql_load.connect_burst(max(dsql_plan.bursts)).assert_connected()
    dsql_load.sequential_connects(20).assert_connected()


def test_256_first_connections_sign_once(note: Note, dsql_endpoint: Endpoint) -> None:
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
    note("E003 first connections", {"connections": 256, "tokens_signed": tokens.signed})
    assert tokens.signed == 1
