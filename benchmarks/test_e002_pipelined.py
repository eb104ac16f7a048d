"""E002, one statement per round trip against pipelines: what the round trips of the published form cost.

The same orders, in a closed loop of the same connections: each statement waits for the answer of the one before; and
independent statements go together, BEGIN with the first and COMMIT with the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql

Note = Callable[[str, Mapping[str, Any]], None]


def test_orders_one_by_one_and_pipelined(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, note: Note) -> None:
    """Throughput and latency of both forms side by side; each keeps every invariant."""
    connections, duration = max(dsql_plan.closed_loop_connections), dsql_plan.contention_window_s
    one_by_one = dsql_load.closed(dsql_orders.mix, connections=connections, duration=duration)
    pipelined = dsql_load.closed(dsql_orders.pipelined_mix, connections=connections, duration=duration, pipeline=True)
    figures: dict[str, float] = {}
    for form, cell in (("one_by_one", one_by_one), ("pipelined", pipelined)):
        cell.assert_consistent()
        figures |= {
            f"tps_{form}": cell.tps,
            f"conflict_rate_{form}": cell.conflict_rate,
            **{f"{name}_p50_ms_{form}": one.p50_ms for name, one in cell.latency.items()},
            **{f"{name}_p99_ms_{form}": one.p99_ms for name, one in cell.latency.items()},
        }
    note("E002 pipelined", figures)
