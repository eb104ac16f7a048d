"""A runner is in the estimate: instances by time, functions by calls; none is started without a budget."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from pytest_dsql.aws.inventory import Inventory
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.cost.books import Budget
from pytest_dsql.cost.estimate import Estimate
from pytest_dsql.cost.functions import Work
from pytest_dsql.cost.shape import CostShape
from pytest_dsql.cost.work import PlannedTest
from pytest_dsql.errors import BudgetReached, UsageError
from pytest_dsql.experiment.plans import plan_for
from pytest_dsql.load.cost import NO_BOOKS
from pytest_dsql.runner import ec2, lambda_fleet
from pytest_dsql.runner.costs import count_machines, functions_counted, shape_of_runner, target_of
from pytest_dsql.runner.job import Job, job_of
from pytest_dsql.settings import Settings
from pytest_dsql.targets.costs import check_budget, open_books
from pytest_dsql.targets.target import Target

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


RUN = "20261130T100000Z-abcdef"
CREATED = Settings(target="dsql", targets=("dsql",), region="us-east-1", plan="full", runner="ec2", budget=5.0)


@pytest.fixture
def job(nowhere: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """What an instance is told of a run whose cluster was made an hour ago; the session itself doesn't run."""
    inventory = Inventory.create(RUN, account="1")
    cluster = nowhere.endpoint.host.partition(".")[0]
    entry = inventory.intend("dsql-cluster", "us-east-1", "c", owner="dsql", identifier=cluster)
    inventory.created(entry, "arn")
    target = replace(nowhere, name="dsql", facts={"region": "us-east-1"})
    told: list[Any] = []

    def measure(session: ec2.Ec2Session, arguments: tuple[str, ...], **_how: object) -> int:
        told.append(session.cost)
        return 0

    monkeypatch.setattr(ec2.Ec2Session, "measure", measure)
    monkeypatch.setattr(ec2, "open_target", lambda *_arguments, **_how: target)
    status = ec2.measure_on_ec2(
        CREATED,
        run_id=RUN,
        arguments=(),
        collected=(),
        root=tmp_path,
        where=tmp_path,
        results=tmp_path,
        estimates={"dsql": 1.5, ec2.OWNER: 2.0},
        say=lambda _text: None,
        show=lambda _text: None,
    )
    assert status == 0
    inventory.close()
    [cost] = told
    made = job_of(CREATED, target, run=RUN, arguments=(), directory=".", secret=None, resume=False, cost=cost)
    return Job.of_json(made.to_json())


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another machine: the run's inventory isn't there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))


def test_a_created_target_has_books_on_the_instance(
    job: Job, nowhere: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere(monkeypatch, tmp_path)
    target = replace(nowhere, name="dsql", facts={"region": "us-east-1"})
    budget = Budget(CREATED.budget)
    count_machines(job.cost, budget)
    settings = CREATED.for_target("dsql")
    assert open_books(settings, target, budget, run_id=RUN) is NO_BOOKS
    books = open_books(settings, target, budget, run_id=RUN, known=target_of(job.cost))
    books.admit("cell")
    facts = books.facts()
    assert facts["estimate_usd"] == 1.5
    assert nowhere.endpoint.host.partition(".")[0] in facts["cost_shape"]
    assert "c7i" not in facts["cost_shape"], "a target costs the same wherever its load is made"


def test_no_cell_begins_on_the_instance_past_the_budget(
    job: Job, nowhere: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere(monkeypatch, tmp_path)
    target = replace(nowhere, name="dsql", facts={"region": "us-east-1"})
    budget = Budget(CREATED.budget)
    # An instance since seven hours: $0.714 each, its disk and its address.
    count_machines({**job.cost, "began_s": time.time() - 7 * 3600}, budget)
    assert budget.spent() == pytest.approx(7 * (0.714 + 0.005 + 8 * 0.08 / 730), rel=0.001)
    books = open_books(CREATED.for_target("dsql"), target, budget, run_id=RUN, known=target_of(job.cost))
    with pytest.raises(BudgetReached, match="cell was not started"):
        books.admit("cell")


def test_what_functions_do_counts_against_the_budget(nowhere: Target) -> None:
    """Here CloudWatch tells nothing yet; two processes of the run call the same function."""
    budget = Budget(0.01)
    settings = Settings(target="attach", targets=("attach",), endpoint=HOST, runner="lambda", budget=0.01)
    run = AwsRun.begin(RUN, lambda_fleet.OWNER, region="us-east-1")
    function = run.inventory.intend("lambda-function", "us-east-1", run.name("function"), owner=run.owner)
    fleet = lambda_fleet.LambdaFleet(run, function, function)
    meter = functions_counted(fleet, settings, budget, processes=2)
    meter.add(Work(calls=10, busy_s=10.0, starts=10))
    assert budget.spent() == pytest.approx(2 * (20 * 1769 / 1024 * 0.0000133334 + 10 * (0.2e-6 + 3 * 25e-6)), rel=1e-3)
    books = open_books(settings, nowhere, budget, run_id=RUN)
    assert books.facts()["runner_source"] == "unit costs"
    meter.add(Work(calls=100))
    with pytest.raises(BudgetReached):
        books.admit("test_calls")


def test_an_attached_target_has_books_of_its_own_there() -> None:
    assert target_of({"estimates": {}, "machines": "{}", "began_s": 0.0}) is None
    budget = Budget(1.0)
    count_machines({}, budget)
    assert budget.spent() == 0.0
