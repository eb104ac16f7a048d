"""A budget on a target that is created: estimate, guard, results and `pytest-dsql cost`, in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.targets.test_whole_run import BENCHMARK, Cloud, all_that_was_written, cloud

#: Two cells; before the second one CloudWatch says that a million DPU were used two minutes ago.
OVERDRAWN = (
    BENCHMARK.replace("assert_meets(SLO)", "assert_consistent()")
    + """
def test_a_million_dpu(dsql_endpoint):
    import boto3
    from datetime import UTC, datetime, timedelta

    cluster = dsql_endpoint.host.partition(".")[0]
    for metric, value in (("TotalDPU", 1e6), ("WriteDPU", 1e6)):
        boto3.client("cloudwatch", region_name="us-east-1").put_metric_data(
            Namespace="AWS/AuroraDSQL",
            MetricData=[
                {
                    "MetricName": metric,
                    "Dimensions": [{"Name": "ClusterId", "Value": cluster}],
                    "Timestamp": datetime.now(UTC) - timedelta(minutes=minutes),
                    "Value": value if minutes == 2 else 0.0,
                }
                for minutes in (2, 1)
            ],
        )

def test_transfers(dsql_load, dsql_transfers):
    raise AssertionError("not even loaded")

def test_more_orders(dsql_load, dsql_orders):
    dsql_load.closed(dsql_orders.mix, connections=2, warmup=0.1, duration=1.0).assert_consistent()
"""
)


@pytest.fixture(scope="module")
def one_region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud"), "us-east-1") as there:
        yield there


def options(there: Cloud, budget: str) -> list[str]:
    kept = [one for one in there.options if not one.startswith("--dsql-budget")]
    return [*kept, f"--dsql-budget={budget}", "--dsql-target=dsql", "--dsql-scale=tiny", "--dsql-workers=1"]


def test_an_estimate_beyond_the_budget_creates_nothing(one_region: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(BENCHMARK)
    done = one_region.run(tmp_path, "pytest", *options(one_region, "0.0001"), check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "exceeds the budget of $0.00 (--dsql-budget), so nothing is started. dsql: about $" in done.stderr
    assert one_region.clusters("us-east-1") == []
    assert not (tmp_path / ".dsql").exists()


def test_no_cell_begins_past_the_guard_and_the_bill_is_compared(one_region: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(OVERDRAWN)
    done = one_region.run(tmp_path, "pytest", "-rs", *options(one_region, "5"))
    assert "dsql: estimate $" in done.stdout
    assert "of a budget of $5.00. dsql: about $" in done.stdout
    assert "2 passed, 2 skipped" in done.stdout
    assert "loading the transfer data on dsql was not started: $8.0" in done.stdout.replace("\n", "")
    assert "test_more_orders was not started: $8.0" in done.stdout.replace("\n", "")
    assert "cost on dsql: 1,000," in done.stdout
    assert one_region.clusters("us-east-1") == []
    results = json.loads((tmp_path / ".dsql" / "latest" / "results.json").read_text())
    [cell] = results["cells"]
    assert cell["cost"]["source"] == "unit costs"
    assert cell["cost"]["dpu"] > 0.0375 * sum(one["attempts"] for one in cell["transactions"].values())
    [target] = results["targets"]
    assert target["cost_usd"] == pytest.approx(8.0, rel=0.01)
    assert target["usd_per_million_dpu"] == 8.0
    assert (target["budget_usd"], target["cost_prices"]) == (5.0, "table of 2026-04-28")
    assert 0 < target["estimate_usd"] < 5
    compared = subprocess.run(
        [
            sys.executable,
            "-c",
            "from pytest_dsql.cli import main; raise SystemExit(main())",
            "cost",
            results["run"]["id"],
        ],
        cwd=tmp_path,
        env=one_region.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    # The cell of a moment ago is reckoned still.
    assert re.search(r"CloudWatch       1,000,\d+\.\d DPU, \$8\.00 \(", compared.stdout), compared.stdout
    one_region.no_secret_in(done.stdout + compared.stdout + all_that_was_written(tmp_path))
    assert "bill: Cost Explorer is complete about a day after the run" in compared.stdout
