"""Inserts as functions of AWS Lambda made them: what a kept connection gains, and how far the rate grows linearly.

The published run (Tokyo, 2026-03) inserted about 115 rows a second with each function that kept its connection, near
linear up to 50 functions, and no more than about 50 a second altogether with a new connection for each.
"""

from __future__ import annotations

import pytest

from pytest_dsql import Mix
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.workloads.inserts.workload import Inserts, read_row

pytestmark = pytest.mark.dsql

#: Below this part of the first function's rate, others add no linear share any more.
LINEAR = 0.8


def test_a_kept_connection_beats_a_new_one(dsql_load: Load, dsql_inserts: Inserts, dsql_plan: Plan) -> None:
    """One function, one operation after the other: inserts and reads, over a kept connection and over new ones."""
    for mix in (dsql_inserts.mix, Mix({read_row: 1.0}, workload=dsql_inserts)):
        kept = dsql_load.closed(mix, connections=1, duration=dsql_plan.contention_window_s)
        new = dsql_load.churn(mix, connections=1, duration=dsql_plan.contention_window_s)
        kept.assert_consistent()
        new.assert_consistent()
        assert kept.tps > new.tps


def test_inserts_grow_with_the_functions(
    dsql_load: Load, dsql_inserts: Inserts, dsql_plan: Plan, dsql_results: ResultsFile
) -> None:
    """Rows per second over the number of functions; the figure of linearity is what each adds, the first being 1."""
    rates = {}
    for functions in dsql_plan.functions:
        cell = dsql_load.closed(dsql_inserts.mix, connections=functions, duration=dsql_plan.contention_window_s)
        cell.assert_consistent()
        rates[functions] = cell.tps
    first = rates[min(rates)] / min(rates)
    linearity = {functions: rate / functions / first for functions, rate in rates.items()}
    linear_to = max((functions for functions, part in linearity.items() if part >= LINEAR), default=0)
    dsql_results.put_experiment(
        "Lambda inserts",
        {
            "rows_per_s_and_function": first,
            "linear_to_functions": linear_to,
            **{f"rows_per_s_with_{functions}": rate for functions, rate in rates.items()},
        },
    )
    assert linear_to >= min(rates)
