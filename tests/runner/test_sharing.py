"""What several processes of a run share goes with the last one of them, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.run import SHARED, AwsRun
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.runner import lambda_fleet
from pytest_dsql.runner.lambda_fleet import OWNER, LambdaFleet, deployed
from pytest_dsql.settings import Settings
from pytest_dsql.targets.created import Guard, shared_of
from pytest_dsql.targets.target import Target

REGION = "us-east-1"
RUN = "20261130T100000Z-abcdef"
SETTINGS = Settings(target="attach", endpoint="x.dsql.us-east-1.on.aws", runner="lambda", budget=1.0)

TRUST = '{"Version": "2012-10-17", "Statement": []}'


@pytest.fixture
def account(aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """An account in this process, in which a deployment is one role: what matters here is when it goes."""

    def one_role(run: AwsRun, _target: Target, **_how: Any) -> LambdaFleet:
        def call(entry: Entry) -> Made:
            made = run.clients.call(
                "iam", REGION, "create_role", RoleName=entry.name, AssumeRolePolicyDocument=TRUST, Tags=run.tag_list()
            )
            return Made(made["Role"]["Arn"])

        made = run.create("iam-role", run.name("function"), call)
        return LambdaFleet(run, made, made)

    monkeypatch.setattr(lambda_fleet, "deploy", one_role)
    with mock_aws():
        yield Clients()


def roles(account: Clients) -> list[str]:
    return [one["RoleName"] for one in account.pages("iam", REGION, "list_roles", "Roles")]


def quiet(_text: str) -> None:
    pass


def test_the_process_that_is_done_first_leaves_the_function_to_the_others(account: Clients, nowhere: Target) -> None:
    with deployed(SETTINGS, nowhere, run_id=RUN, say=quiet):
        with deployed(SETTINGS, nowhere, run_id=RUN, say=quiet):
            assert len(roles(account)) == 1
        assert len(roles(account)) == 1, "the other one still calls it"
    assert roles(account) == []


def test_the_process_that_starts_the_others_keeps_it_from_going_in_between(account: Clients, nowhere: Target) -> None:
    guard = Guard(SETTINGS, RUN, quiet)
    for _worker in range(2):
        with deployed(SETTINGS, nowhere, run_id=RUN, say=quiet):
            pass
        assert reap().removed == [], "another run's start"
        assert len(roles(account)) == 1
    assert guard.close() == 0
    assert roles(account) == []


def test_the_guard_knows_the_runners_owner() -> None:
    assert shared_of(SETTINGS) == [OWNER]
    assert shared_of(Settings(target="dsql", region=REGION, budget=1.0, runner="lambda")) == ["dsql", SHARED, OWNER]
    assert shared_of(Settings()) == []
