"""Contention: what share of the transactions loses a conflict, and what share still fails after its retries.

Transfers between accounts, each in an explicit REPEATABLE READ block, evenly over all accounts and with 80 % of them on
1 % of the accounts, tried once and up to three times. Nothing is promised of latencies; no money may be lost.
"""

from __future__ import annotations

import pytest

from pytest_dsql.access import HOT, UNIFORM
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.transfers.workload import Transfers

pytestmark = pytest.mark.dsql


def test_transfers_conflict_and_lose_nothing(
    dsql_load: Load, dsql_transfers: Transfers, dsql_plan: Plan, rivals: int
) -> None:
    """More conflicts on hot accounts, fewer failures with retries, and every balance right in any case."""
    cells = {
        (access.describe(), attempts): dsql_load.closed(
            dsql_transfers.mix,
            connections=rivals,
            duration=dsql_plan.contention_window_s,
            access=access,
            attempts=attempts,
        )
        for access in (UNIFORM, HOT)
        for attempts in (1, 3)
    }
    for cell in cells.values():
        cell.assert_consistent()
    even, hot = ([cells[access.describe(), attempts] for attempts in (1, 3)] for access in (UNIFORM, HOT))
    assert max(cell.conflict_rate for cell in even) < min(cell.conflict_rate for cell in hot)
    assert hot[1].failure_rate < hot[0].failure_rate
