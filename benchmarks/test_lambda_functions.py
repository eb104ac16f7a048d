"""Functions that insert and read single rows: what a kept connection gains, and how far the rate grows linearly.

With `--dsql-runner lambda` they are functions of AWS Lambda, fanned out by Step Functions as in the published run
(Tokyo, 2026-03: about 115 rows a second from each that kept its connection, near linear to 50 functions); else the same
code runs as threads here.
"""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_dsql.experiment.plans import Plan
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.runner.functions import Called, Functions

pytestmark = pytest.mark.dsql

#: Rows that each function inserts one after the other: as published, and for seconds-long cells.
ROWS = {"full": 1_000, "quick": 50}


def checked(called: Called) -> Called:
    """Nothing was refused, and nothing is lost or doubled."""
    assert called.failed == {}
    assert not any(called.violations.values()), called.violations
    assert called.committed == called.operations
    return called


@pytest.mark.parametrize("operation", ["insert", "read"])
def test_a_function_gains_by_keeping_its_connection(
    dsql_functions: Functions, dsql_plan: Plan, dsql_results: ResultsFile, operation: Literal["insert", "read"]
) -> None:
    """One function, one operation per call: over the connection that it kept, and over a new one for each."""
    calls = ROWS[dsql_plan.name]
    kept, new = (
        checked(dsql_functions.call(operation, calls=calls, concurrency=1, keep=keep)) for keep in (True, False)
    )
    dsql_results.put_experiment(f"functions, one at a time: {operation}, kept", kept.figures())
    dsql_results.put_experiment(f"functions, one at a time: {operation}, new", new.figures())
    assert kept.latency.p50_ms < new.latency.p50_ms


def test_inserts_grow_with_the_number_of_functions(
    dsql_functions: Functions, dsql_plan: Plan, dsql_results: ResultsFile
) -> None:
    """Each function inserts rows one after the other over one connection; the share of linear growth is a figure."""
    rows = ROWS[dsql_plan.name]
    rates = {}
    for functions in dsql_plan.functions:
        called = checked(dsql_functions.call("insert", calls=functions, concurrency=functions, times=rows, keep=True))
        rates[functions] = called.rate_per_s
        dsql_results.put_experiment(f"functions: {functions} at once", called.figures())
    first = rates[min(rates)] / min(rates)
    dsql_results.put_experiment(
        "functions: linearity", {f"with_{functions}": rate / functions / first for functions, rate in rates.items()}
    )
