"""Killed right before or right after any call that creates or removes something: a reap leaves nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest

from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.reaper import reap
from pytest_dsql.targets import created
from tests.aws.clusters import Hours
from tests.aws.conftest import emptied, moto_server
from tests.aws.killing import Moment, kills
from tests.plain_postgres import PlainPostgres
from tests.targets.rds import account
from tests.targets.rds.account import contents, ec2_of
from tests.targets.rds.conftest import REGION, RUN_ID, begin
from tests.targets.rds.opening import settings_for

#: Right after a call its answer is lost: the harder half. DSQL_KILLS=all has the process die right before each, too.
MOMENTS: tuple[Moment, ...] = ("before", "after") if os.environ.get("DSQL_KILLS") == "all" else ("after",)
#: Calls that change something, from the first create to the last delete. More of them: more steps at which to die.
STEPS = {"rds-multi-az,aurora-serverless": 36, "rds-proxy": 23}


@pytest.fixture(scope="module")
def surviving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An account in another process, which survives what is killed."""
    with moto_server(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture
def empty(
    surviving: str,
    aws_environment: dict[str, str],
    clients_made_once: None,
    databases: PlainPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> PlainPostgres:
    """That account, empty."""
    emptied(surviving)
    # Looked at by the same clients each time: making them takes longer than looking.
    monkeypatch.setattr(account, "client", cache(account.client))
    monkeypatch.setenv("AWS_ENDPOINT_URL", surviving)
    monkeypatch.setattr(created, "begin", lambda chosen, **_ignored: begin(chosen.target))
    return databases


def life(targets: str, postgres: PlainPostgres, options: dict[str, str]) -> None:
    """Everything that a run does with its targets: create them, reach them, remove them. They share a network."""
    opened = [created.open_created(settings_for(one, postgres, **options), run_id=RUN_ID) for one in targets.split(",")]
    for one in reversed(opened):
        one.close()


def options_of(target: str) -> dict[str, str]:
    """Options with which as much as possible is created. A proxy needs a VPC that is there already."""
    if target != "rds-proxy":
        return {"parameters": "random_page_cost:1.1"}
    ec2 = ec2_of(REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")
        for number, zone in enumerate("ab")
    ]
    return {
        "subnets": ",".join(one["Subnet"]["SubnetId"] for one in subnets),
        "before": "aurora-serverless",
        "parameters": "random_page_cost:1.1",
    }


@pytest.mark.parametrize("target", STEPS)
def test_a_reap_removes_what_a_killed_run_left(target: str, empty: PlainPostgres) -> None:
    options = options_of(target)
    yours = contents()
    places = list[str]()
    for where in kills(lambda: life(target, empty, options), MOMENTS, writes=False):
        places.append(where)
        if where == "undisturbed":
            assert contents() == yours
        removal = reap(clock=Hours().clock())
        assert [(str(entry), why) for entry, why in removal.remaining] == [], where
        assert contents() == yours, where
        assert inventories() == [], where
    assert len(places) == 1 + STEPS[target] * len(MOMENTS), places
