"""What a run costs is in its results and in its summary, also on the embedded engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plain_postgres import plain_postgres
from tests.plugin.conftest import CELL


def results(pytester: pytest.Pytester) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((pytester.path / ".dsql/latest/results.json").read_text())
    return content


def test_cells_on_the_engine_have_their_cost(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELL
        + """
from pytest_dsql.workloads.inserts.workload import read_row

def test_cells(dsql_load, dsql_inserts):
    dsql_load.closed(dsql_inserts.mix, connections=1, warmup=0.1, duration=1.0).assert_consistent()
    reads = Mix({read_row: 1.0}, workload=dsql_inserts)
    dsql_load.closed(reads, connections=1, warmup=0.1, duration=0.5).assert_consistent()
    dsql_load.connect_burst(5).assert_connected()
"""
    )
    result = attached.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cost on local: * DPU, $0.0* (as it would be on Aurora DSQL; estimated;*"])
    content = results(attached)
    inserts, reads, burst = (cell["cost"] for cell in content["cells"])
    for cost in (inserts, reads, burst):
        assert (cost["source"], cost["estimated"]) == ("engine", True)
        assert cost["usd"] == pytest.approx(cost["dpu"] * 8e-6, abs=1e-8)
        assert cost["began_at"] < cost["ended_at"]
    committed = content["cells"][0]["transactions"]["insert_row"]["outcomes"]["ok"]
    # 0.05 DPU for each of them at least (the minimum of a transaction that writes), those of the warm-up included.
    assert inserts["write_dpu"] >= 0.05 * committed > 0
    assert inserts["write_dpu"] < 0.05 * committed * 3
    assert reads["write_dpu"] == 0
    assert reads["read_dpu"] >= 0.00375 * content["cells"][1]["transactions"]["read_row"]["outcomes"]["ok"] > 0
    [target] = content["targets"]
    assert target["cost_dpu"] > inserts["dpu"] + reads["dpu"]
    assert target["usd_per_million_dpu"] == 8.0


def test_the_processes_of_a_run_add_up(attached: pytest.Pytester) -> None:
    """Two workers of pytest-xdist have a cluster each; the target has used what both have."""
    attached.makepyfile(
        CELL
        + """
@pytest.mark.parametrize("n", [1, 2])
def test_cells(dsql_load, dsql_inserts, n):
    dsql_load.closed(dsql_inserts.mix, connections=1, warmup=0, duration=0.3).assert_consistent()
"""
    )
    result = attached.runpytest_subprocess("-n", "2")
    assert result.ret == pytest.ExitCode.OK
    content = results(attached)
    [target] = content["targets"]
    cells = [cell["cost"]["dpu"] for cell in content["cells"]]
    assert target["cost_dpu"] > sum(cells)


def test_explain_tells_what_each_transaction_costs_and_commits_nothing(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELL
        + """
from pytest_dsql import Rejected
from pytest_dsql.errors import UsageError
from pytest_dsql.workloads.orders.transactions import order_create, product_read

def count(connect):
    return connect().execute("SELECT count(*) FROM pytest_dsql_orders.operation_receipts").fetchone()[0]

def test_them(dsql_load, dsql_orders, dsql_connect):
    before = count(dsql_connect)
    costs = dsql_load.dpu(dsql_orders.mix, samples=3)
    assert set(costs) == {"product_read", "order_history", "order_create", "order_cancel"}
    assert count(dsql_connect) == before
    assert costs["product_read"].write == costs["order_history"].write == 0
    assert costs["product_read"].read >= 0.00375
    assert costs["order_create"].write >= 0.05 <= costs["order_cancel"].write
    assert all(cost.compute > 0 for cost in costs.values())

@transaction(kind="write")
def refuses(ctx):
    yield "SELECT 1 FROM pytest_dsql_orders.products WHERE id = $1", (1,)
    return Rejected("no")

@transaction(kind="read")
def several(ctx):
    first, second = yield [("SELECT $1::int + 1", (1,)), "SELECT 2"]
    assert (first.one(), second.one()) == ((2,), (2,))

def test_a_rejection_and_a_pipeline(dsql_load, dsql_orders):
    costs = dsql_load.dpu(Mix({refuses: 1, several: 1}), samples=1)
    assert costs["refuses"].read >= 0.00375
    assert costs["several"].read == 0 < costs["several"].compute
"""
    )
    result = attached.runpytest_subprocess("--dsql-scale", "tiny")
    result.assert_outcomes(passed=2)
    figures = next(value for name, value in results(attached)["experiments"].items() if name.endswith("test_them dpu"))
    assert figures["samples"] == 3
    assert figures["order_create_dpu"] == pytest.approx(
        sum(figures[f"order_create_{part}_dpu"] for part in ("read", "write", "compute")), abs=1e-5
    )


def test_plain_postgresql_does_not_tell_what_statements_cost(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        CELL
        + """
from pytest_dsql.errors import UsageError

def test_it(dsql_load):
    with pytest.raises(UsageError, match="doesn't tell what statements cost"):
        dsql_load.dpu(MIX)
"""
    )
    with plain_postgres() as server:
        result = pytester.runpytest_subprocess("--dsql-dsn", server.dsn)
    result.assert_outcomes(passed=1)
    assert results(pytester)["targets"][0].get("cost_usd") is None
