"""A runner is in the estimate: instances by time, functions by calls; none is started without a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from moto import mock_aws

from pytest_dsql.cost.estimate import Estimate
from pytest_dsql.cost.shape import CostShape
from pytest_dsql.cost.work import PlannedTest
from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.plans import plan_for
from pytest_dsql.runner import ec2, lambda_fleet
from pytest_dsql.runner.costs import shape_of_runner
from pytest_dsql.settings import Settings
from pytest_dsql.targets.costs import check_budget

FULL = plan_for("full", "dsql")
HOST = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws"
CLOSED_LOOP = [
    PlannedTest("test_a", frozenset({"dsql_load", "dsql_orders"}), {"connections": connections})
    for connections in FULL.closed_loop_connections
]
FUNCTIONS = [PlannedTest("test_inserts", frozenset({"dsql_functions", "dsql_target"}))]


@pytest.fixture(autouse=True)
def account(aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # moto has no prices: the table that comes with the package is used.
    monkeypatch.setattr("pytest_dsql.cost.price_list.PriceList.__call__", lambda *_arguments: None)
    with mock_aws():
        yield


def reckoned(
    runner: str, tests: Iterable[PlannedTest], *, target: str = "attach", budget: float = 1000.0, **options: str
) -> dict[str, Estimate]:
    settings = Settings(
        target=target,
        targets=(target,),
        endpoint=HOST if target == "attach" else None,
        region="us-east-1" if target != "attach" else None,
        plan="full",
        runner=runner,
        runner_option=options,
        budget=budget,
    )
    chosen = list(tests)

    def shape(region: str) -> CostShape | None:
        return shape_of_runner(settings, FULL, chosen, region)

    return dict(check_budget(settings, FULL, lambda _target: chosen, shape)[0])


def test_an_instance_its_disk_and_its_address_are_paid_for_as_long_as_the_run_lasts() -> None:
    found = reckoned("ec2", CLOSED_LOOP)
    assert list(found) == [ec2.OWNER]
    by_item = {line.price.item: line for line in found[ec2.OWNER].lines}
    assert set(by_item) == {"ec2/c7i.4xlarge", "ebs-gp3", "public-ipv4"}
    hours = (found[ec2.OWNER].work.seconds + 6 * 600) / 3600
    assert by_item["ec2/c7i.4xlarge"].usd == pytest.approx(0.714 * hours)
    assert by_item["ebs-gp3"].usd == pytest.approx(0.08 * 8 * hours / 730)
    assert by_item["public-ipv4"].usd == pytest.approx(0.005 * hours)
    assert all(line.price.source and line.price.dated for line in by_item.values())


def test_the_type_counts() -> None:
    small, large = (reckoned("ec2", CLOSED_LOOP, type=one)[ec2.OWNER].usd for one in ("c7i.xlarge", "c7i.4xlarge"))
    assert small < large / 3


def test_a_created_target_waits_for_the_instances_too() -> None:
    here = reckoned("here", CLOSED_LOOP, target="dsql")
    there = reckoned("ec2", CLOSED_LOOP, target="dsql")
    assert list(here) == ["dsql"]
    assert list(there) == ["dsql", ec2.OWNER]
    assert there["dsql"].usd > here["dsql"].usd


def test_functions_are_paid_for_by_calls_and_by_their_seconds() -> None:
    found = reckoned("lambda", FUNCTIONS)
    assert list(found) == [lambda_fleet.OWNER]
    estimate = found[lambda_fleet.OWNER]
    by_item = {line.price.item: line.usd for line in estimate.lines}
    assert set(by_item) == {"lambda-gb-second", "lambda-requests", "step-functions-transitions"}
    # The calls of the fixture's benchmark with the full plan: 1,000 each over kept and over new connections, and 88.
    assert by_item["lambda-requests"] > 2_000 * 0.2e-6
    assert by_item["step-functions-transitions"] > 2_000 * 2 * 25e-6
    busy_s = sum(FULL.functions) * FULL.functions_window_s
    assert by_item["lambda-gb-second"] > busy_s * 1.7 * 0.0000133334
    assert not any(" h" in line.what for line in estimate.lines), "time has no part in it"
    twice = reckoned("lambda", FUNCTIONS * 2)[lambda_fleet.OWNER]
    assert twice.usd == pytest.approx(2 * estimate.usd, rel=0.01)


def test_without_functions_nothing_is_deployed() -> None:
    assert reckoned("lambda", CLOSED_LOOP) == {}


@pytest.mark.parametrize(("runner", "tests", "budget"), [("ec2", CLOSED_LOOP, 0.5), ("lambda", FUNCTIONS, 0.01)])
def test_beyond_the_budget_nothing_is_started(runner: str, tests: list[PlannedTest], budget: float) -> None:
    with pytest.raises(UsageError, match=rf"exceeds the budget .* runner-{runner}: about"):
        reckoned(runner, tests, budget=budget)
