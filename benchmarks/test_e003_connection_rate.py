"""E003, planned and not run in the published experiment: connection attempts at a rate for a while, and who limits it.

The published run saw 120 to 135 new connections a second and could not tell DSQL's limit (100 a second after a burst of
1,000) from that of one Python process. More worker processes, their CPU, the phases and the refusals can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan

pytestmark = pytest.mark.dsql

Note = Callable[[str, Mapping[str, Any]], None]


def test_a_sustained_rate_of_new_connections(dsql_load: Load, dsql_plan: Plan, note: Note) -> None:
    """The same rate asked for by one worker process and by several; in the full plan ten times DSQL's limit."""
    runs = [
        dsql_load.connect_rate(dsql_plan.connect_rate, duration=dsql_plan.connect_rate_s, workers=workers)
        for workers in dsql_plan.connecting_workers
    ]
    for run in runs:
        run.assert_connected()
    found = dsql_load.what_limits(*runs)
    note(
        "E003 sustained rate of new connections",
        {
            "asked_per_s": dsql_plan.connect_rate,
            "limited_by": found.limited_by,
            "reason": found.reason,
            **{f"per_s_with_{run.workers}": run.rate_per_s for run in runs},
            **{f"cpu_ms_per_connection_with_{run.workers}": run.client_cpu_ms_per_connection for run in runs},
            **{f"refused_with_{run.workers}": sum(run.refused.values()) for run in runs},
        },
    )
