"""The budget is compared before anything is created; shapes get the ids of what was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_dsql.aws.inventory import Entry
from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape, DsqlUse
from pytest_dsql.cost.work import PlannedTest
from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.plans import plan_for
from pytest_dsql.settings import Settings
from pytest_dsql.targets.commands import policy
from pytest_dsql.targets.costs import check_budget, declared_by, identified, is_created

FULL = plan_for("full", "dsql")


def settings(*targets: str, budget: float, **options: str) -> Settings:
    return Settings(target=targets[0], targets=targets, region="us-east-1", budget=budget, target_option=options)


def closed_loop(_target: str) -> Iterable[PlannedTest]:
    for connections in FULL.closed_loop_connections:
        yield PlannedTest("test_a", frozenset({"dsql_load", "dsql_orders"}), {"connections": connections})


@pytest.mark.usefixtures("account")
def test_the_published_closed_loop_within_a_budget() -> None:
    estimates, said = check_budget(settings("dsql", budget=10), FULL, closed_loop)
    assert 7 < estimates["dsql"].usd < 10
    assert said.startswith("estimate $")
    assert "of a budget of $10.00. dsql: about $" in said


@pytest.mark.usefixtures("account")
def test_all_targets_that_are_created_count() -> None:
    chosen = settings("local", "dsql", "dsql-multi-region", budget=100, peer="us-east-2", witness="us-west-2")
    estimates, said = check_budget(chosen, FULL, closed_loop)
    assert list(estimates) == ["dsql", "dsql-multi-region"]
    assert "for us-east-2 the dearest of other Regions" in said
    estimates, _ = check_budget(settings("local", "dsql", budget=100), FULL, closed_loop)
    assert list(estimates) == ["dsql"]


@pytest.mark.usefixtures("account")
def test_a_target_is_paid_for_while_the_others_are_measured() -> None:
    """An instance costs by the hour: with two more targets, which cost nothing, it lives three times as long."""
    alone, _ = check_budget(settings("rds-multi-az", budget=1000), FULL, closed_loop)
    three, said = check_budget(settings("rds-multi-az", "local", "attach", budget=1000), FULL, closed_loop)
    work_s = alone["rds-multi-az"].work.seconds
    coming_s = 1800.0
    assert three["rds-multi-az"].usd == pytest.approx(
        alone["rds-multi-az"].usd * (3 * work_s + coming_s) / (work_s + coming_s)
    )
    assert f"for {(3 * work_s + coming_s) / 3600:.1f} h $" in said
    # What is made waits for the making of the others, too.
    both, _ = check_budget(settings("rds-multi-az", "aurora-provisioned", budget=1000), FULL, closed_loop)
    assert both["rds-multi-az"].usd == pytest.approx(2 * alone["rds-multi-az"].usd)


@pytest.mark.usefixtures("account")
def test_what_is_used_counts_once_however_many_targets_there_are() -> None:
    """DPU are of a target's own work."""
    alone, _ = check_budget(settings("dsql", budget=100), FULL, closed_loop)
    two, _ = check_budget(settings("dsql", "local", budget=100), FULL, closed_loop)
    assert two["dsql"].dpu == alone["dsql"].dpu
    assert two["dsql"].usd == pytest.approx(alone["dsql"].usd, rel=0.01)


@pytest.mark.usefixtures("account")
def test_beyond_the_budget_nothing_is_started() -> None:
    with pytest.raises(UsageError, match=r"exceeds the budget of \$5.00"):
        check_budget(settings("dsql", budget=5), FULL, closed_loop)


def test_who_is_paid_for() -> None:
    assert [is_created(name) for name in ("local", "attach", "dsql", "mypackage.mytarget")] == [
        False,
        False,
        True,
        True,
    ]


def test_the_shape_of_a_multi_region_cluster_names_both_regions() -> None:
    chosen = settings("dsql-multi-region", budget=1, peer="us-east-2", witness="us-west-2")
    shape_of = declared_by("dsql-multi-region")
    assert shape_of is not None
    assert shape_of(chosen, "us-east-1").regions == ("us-east-1", "us-east-2")


def test_a_module_that_says_nothing_of_its_cost_is_asked_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be no target on AWS: there may be neither boto3, nor credentials, nor a Region."""
    (tmp_path / "somebodys_target.py").write_text(
        "OPTIONS = {}\nACTIONS = ()\ndef check(settings): pass\ndef open(settings, run): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    chosen = Settings(target="somebodys_target", targets=("somebodys_target",), budget=1.0)
    assert check_budget(chosen, FULL, closed_loop) == ({}, "")


def entry(number: int, kind: str, region: str, name: str, **details: str) -> Entry:
    return Entry("run", number, kind, region, name, "token", "target", datetime.now(UTC), arn="arn", details=details)


def test_ids_come_from_the_inventory() -> None:
    shape = CostShape(
        "t",
        dsql=DsqlUse("us-east-1", peers=(("us-east-2", None),)),
        acu=AcuUse("us-east-1", 4, 32, 2),
        io=AuroraIo("us-east-1"),
    )
    found = identified(
        shape,
        [
            entry(1, "dsql-cluster", "us-east-1", "first", identifier="a" * 26),
            entry(2, "dsql-cluster", "us-east-2", "peer", identifier="b" * 26),
            entry(3, "db-cluster", "us-east-1", "volume"),
            entry(4, "db-instance", "us-east-1", "writer"),
            entry(5, "db-instance", "us-east-1", "reader"),
            entry(6, "vpc", "us-east-1", "net"),
        ],
    )
    assert found.dsql == DsqlUse("us-east-1", "a" * 26, peers=(("us-east-2", "b" * 26),))
    assert found.acu == AcuUse("us-east-1", 4, 32, 2, instances=("writer", "reader"))
    assert found.io == AuroraIo("us-east-1", "volume")


def test_the_policy_of_a_target_has_what_its_cost_asks_for() -> None:
    said: list[str] = []
    assert policy("dsql", said.append) == 0
    allowed = {action for one in json.loads(said[0])["Statement"] for action in one["Action"]}
    assert {
        "dsql:CreateCluster",
        "cloudwatch:GetMetricData",
        "pricing:GetProducts",
        "ce:GetCostAndUsage",
        "ce:ListCostAllocationTags",
    } <= allowed
