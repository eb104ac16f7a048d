"""The budget is compared before anything is created; shapes get the ids of what was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from pytest_dsql.aws.inventory import Entry
from pytest_dsql.cost.prices import NoPrice
from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape, DsqlUse
from pytest_dsql.cost.work import PlannedTest
from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.plans import plan_for
from pytest_dsql.settings import Settings
from pytest_dsql.targets.commands import policy
from pytest_dsql.targets.costs import check_budget, identified, is_created, planned_shape

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
    with pytest.raises(NoPrice, match="no price is known of dsql-dpu in us-east-2"):
        check_budget(chosen, FULL, closed_loop)
    estimates, _ = check_budget(settings("local", "dsql", budget=100), FULL, closed_loop)
    assert list(estimates) == ["dsql"]


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
    assert planned_shape(chosen, "us-east-1").regions == ("us-east-1", "us-east-2")


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
