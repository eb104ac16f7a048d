"""Killed right before or right after any call that creates or removes something: a reap leaves nothing."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from urllib3 import request

from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.reaper import reap
from pytest_dsql.targets import created
from tests.aws.conftest import moto_server
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents, ec2_of
from tests.targets.rds.conftest import REGION, RUN_ID, Hours, begin
from tests.targets.rds.interference import Calls, Death, interfering
from tests.targets.rds.opening import settings_for

#: Right after a call its answer is lost: the harder half. DSQL_KILLS=all has the process die right before each, too.
MOMENTS = ("before", "after") if os.environ.get("DSQL_KILLS") == "all" else ("after",)
#: Calls that change something, from the first create to the last delete. More of them: more steps at which to die.
STEPS = {"rds-multi-az": 22, "rds-proxy": 23}


@pytest.fixture(scope="module")
def surviving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An account in another process, which survives what is killed."""
    with moto_server(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture
def empty(
    surviving: str, aws_environment: dict[str, str], databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch
) -> PlainPostgres:
    """That account, empty."""
    assert request("POST", f"{surviving}/moto-api/reset").status == 200
    monkeypatch.setenv("AWS_ENDPOINT_URL", surviving)
    monkeypatch.setattr(created, "begin", lambda chosen, **_ignored: begin(chosen.target))
    return databases


def life(target: str, postgres: PlainPostgres, options: dict[str, str]) -> None:
    """Everything that a run does with a target: create it, reach it, remove it."""
    created.open_created(settings_for(target, postgres, **options), run_id=RUN_ID).close()


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


def in_a_child(work: Callable[[], None]) -> int:
    """Run it in a forked process; return the signal that ended it, 0 for none."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("target", STEPS)
def test_a_reap_removes_what_a_killed_run_left(target: str, empty: PlainPostgres, tmp_path: Path) -> None:
    options = options_of(target)
    yours = contents()
    steps = steps_of(target, empty, options, tmp_path / "calls")
    assert contents() == yours
    assert len(steps) == STEPS[target], steps

    for number, step in enumerate(steps, 1):
        for when in MOMENTS:
            die(target, empty, options, number, when)  # type: ignore[arg-type]
            removal = reap(clock=Hours().clock())
            where = f"{when} {number}, {step}"
            assert [(str(entry), why) for entry, why in removal.remaining] == [], where
            assert contents() == yours, where
            assert inventories() == [], where


def steps_of(target: str, postgres: PlainPostgres, options: dict[str, str], report: Path) -> list[str]:
    """Return the calls of a life that nobody ends. In a child as well: whose process lives on holds its inventory."""

    def work() -> None:
        calls = Calls()
        with interfering(after=calls.after):
            life(target, postgres, options)
        report.write_text("\n".join(calls.made))

    assert in_a_child(work) == 0
    return report.read_text().splitlines()


def die(
    target: str, postgres: PlainPostgres, options: dict[str, str], number: int, when: Literal["before", "after"]
) -> None:
    death = Death(number, when)

    def work() -> None:
        with interfering(before=death.before, after=death.after):
            life(target, postgres, options)

    assert in_a_child(work) == 9
