"""E003, planned and not run in the published experiment: application tasks that share a pool of connections.

How many connections do N tasks need? With fewer connections than tasks, a part of every request is waiting for one;
with as many, none is. Product reads in closed loop: a task asks for its next connection as soon as its request has
ended. The tasks are the generator's own, so that nothing of an application's pool or event loop is in the figures;
`test_e003_connections.py` asks the same of psycopg_pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_dsql import Mix
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.transactions import product_read
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql

Note = Callable[[str, Mapping[str, Any]], None]


def test_tasks_share_a_pool(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, note: Note, pool: int) -> None:
    """Reads per second, and how long a task waits for a connection and for the database, by the number of tasks."""
    figures: dict[str, float] = {}
    waits = {}
    for tasks in dsql_plan.pool_tasks:
        cell = dsql_load.pooled(
            Mix({product_read: 1.0}, workload=dsql_orders),
            tasks=tasks,
            pool=pool,
            warmup=dsql_plan.connection_warmup_s,
            duration=dsql_plan.pool_window_s,
        )
        cell.assert_consistent()
        waits[tasks] = cell.wait(product_read).p50_ms
        figures |= {
            f"reads_per_s_with_{tasks}": cell.tps,
            f"wait_p50_ms_with_{tasks}": waits[tasks],
            f"wait_p99_ms_with_{tasks}": cell.wait(product_read).p99_ms,
            f"service_p50_ms_with_{tasks}": cell.service(product_read).p50_ms,
            f"share_that_waited_with_{tasks}": cell.generator.connection_wait_share,
        }
    note(f"E003 tasks of the generator, pool of {pool}", figures)
    fewest, most = min(waits), max(waits)
    if fewest <= pool < most:
        assert waits[fewest] < waits[most]
