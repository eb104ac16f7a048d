"""A session on instances: an account of moto's in another process, an engine, machines that are processes here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.results.reader import read_results
from pytest_dsql.runner import machines
from pytest_dsql.runner.ec2 import OWNER, Ec2Session
from pytest_dsql.runner.machines import remove_all
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.runner.store import RESULTS, Store
from pytest_dsql.settings import Settings
from pytest_dsql.targets.target import Target
from tests.runner.agent import Agent
from tests.runner.conftest import TESTS, Fast, left, refused

REGION = "us-east-1"
RUN = "20261130T100000Z-abcdef"


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_shop.py").write_text(TESTS)
    return folder


@pytest.fixture
def session(server: str, nowhere: Target, tests: Path) -> Ec2Session:
    run = AwsRun.begin(RUN, OWNER, region=REGION)
    run.clock = Fast().clock()
    return Ec2Session(
        run=run,
        options=Ec2Options.of({"restarts": "1"}, plan="quick"),
        settings=Settings(target="attach", runner="ec2"),
        target=nowhere,
        results=tests / ".dsql" / RUN,
        show=lambda _text: None,
    )


def measured(session: Ec2Session, tests: Path, *arguments: str) -> int:
    return session.measure(arguments or ("test_shop.py",), root=tests, where=tests)


def test_the_whole_session_runs_there_and_its_results_come_back(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], target: Target
) -> None:
    session.target = target
    shown: list[str] = []
    session.show = shown.append
    machine = agent()
    assert measured(session, tests) == 0
    assert set(left(session.run)) == {"buckets", "roles", "profiles", "groups", "instances"}
    [instance] = left(session.run)["instances"]
    assert instance["InstanceLifecycle"] == "spot"
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    [group] = left(session.run)["groups"]
    assert group["IpPermissions"] == [], "no inbound port"
    results = read_results(session.results)
    assert results["run"]["id"] == RUN
    assert [one["verdict"]["outcome"] for one in results["cells"]] == ["pass", "pass"]
    assert results["targets"][0]["name"] == "attach"
    assert (session.results.parent / "latest").readlink() == Path(RUN)
    assert not (session.results / "cells").exists()
    assert "2 passed" in "".join(shown)
    assert not (tests / "ran-0.5").exists(), "nothing ran here"
    assert len(machine.processes) == 1
    remove_all(session.run)
    assert left(session.run) == {}


def test_a_lost_machine_is_replaced_and_the_run_is_gone_on_with(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], target: Target
) -> None:
    session.target = target
    said: list[str] = []
    session.run.say = said.append
    session.poll_s = 0.2

    store = Store(session.run.clients, REGION, session.run.name("runner"))

    def lose_the_first(number: int, process: subprocess.Popen[bytes]) -> None:
        if number > 1:
            return
        # In the middle of the second cell, when the first one is in the bucket.
        ran = machine.directory / "machine-1" / "tests" / "ran-12.0"
        while process.poll() is None:
            results = store.get_json(f"{RESULTS}results.json")
            if ran.exists() and results and results["cells"]:
                break
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        for one in left(session.run)["instances"]:
            session.run.clients.call("ec2", REGION, "terminate_instances", InstanceIds=[one["InstanceId"]])

    machine = agent(after=lose_the_first)
    (tests / "test_shop.py").write_text(TESTS.replace("3.0]", "12.0]"))
    assert measured(session, tests) == 0
    assert any("is lost" in one for one in said)
    results = read_results(session.results)
    [resumed] = results["run"]["resumed"]
    assert resumed["taken"] == ["test_shop.py::test_cell[0.5]"]
    assert len(results["cells"]) == 2
    assert len(machine.processes) == 2
    remove_all(session.run)
    assert left(session.run) == {}


@pytest.mark.parametrize(("argument", "status"), [("test_shop.py", 1), ("test_shop.py::test_gone", 4)])
def test_tests_that_fail_there_fail_here(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], argument: str, status: int
) -> None:
    agent()
    (tests / "test_shop.py").write_text("def test_it(): assert 1 == 2")
    assert measured(session, tests, argument) == status


def test_a_machine_that_can_t_be_made_ready_says_why(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent(bootstrap=True)
    monkeypatch.setattr(machines, "commands", lambda *_arguments: ["echo 'no network' >&2", "exit 1"])
    with pytest.raises(DsqlError, match="could not be made ready: no network"):
        measured(session, tests)
    remove_all(session.run)
    assert left(session.run) == {}


def test_a_session_that_breaks_off_says_why(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is there, and its command has ended: another machine would do no better."""
    machine = agent()
    put = session.run.clients.call

    def broken(number: int, process: subprocess.Popen[bytes]) -> None:
        bucket = session.run.name("runner")
        put("s3", REGION, "put_object", Bucket=bucket, Key=f"machine-{number}/log", Body=b"1 passed, no newline yet")
        process.kill()
        (machine.directory / f"machine-{number}" / "stderr").write_text("S3 says no")

    machine.after = broken
    with pytest.raises(DsqlError, match=r"the session on i-\w+ broke off \(Failed\): S3 says no"):
        measured(session, tests)
    assert len(machine.processes) == 1


def test_a_machine_that_nobody_can_reach_says_what_its_subnet_lacks(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent]
) -> None:
    agent().online = False
    session.run.clock = Fast(0.0).clock()
    with pytest.raises(DsqlError, match="its subnet needs a way to Systems Manager"):
        measured(session, tests)


def test_machines_that_are_always_taken_away_end_the_run(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent]
) -> None:
    session.poll_s = 0.2

    def lose(_number: int, process: subprocess.Popen[bytes]) -> None:
        for one in left(session.run)["instances"]:
            session.run.clients.call("ec2", REGION, "terminate_instances", InstanceIds=[one["InstanceId"]])

    agent(after=lose)
    (tests / "test_shop.py").write_text("import time\ndef test_it(): time.sleep(60)")
    with pytest.raises(DsqlError, match=f"2 instances were taken away .* --dsql-resume {RUN}"):
        measured(session, tests)


def test_another_zone_is_tried_when_one_has_no_machine(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent()
    refused(monkeypatch, "RunInstances", "InsufficientInstanceCapacity", times=2, status=500)
    (tests / "test_shop.py").write_text("def test_it(): pass")
    assert measured(session, tests) == 0
    [instance] = left(session.run)["instances"]
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1c"


def test_no_zone_with_a_machine_is_one_line(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent()
    refused(monkeypatch, "RunInstances", "InsufficientInstanceCapacity", status=500)
    with pytest.raises(DsqlError, match=r"no c7i.xlarge \(spot\) to give now in us-east-1a .* market=on-demand"):
        measured(session, tests)
    assert not any(one.kind == "ec2-instance" for one in session.run.inventory.remaining)


@pytest.mark.parametrize(
    ("operation", "code", "failure"),
    [
        ("CreateBucket", "AccessDenied", Failure.DENIED),
        ("CreateRole", "LimitExceeded", Failure.QUOTA),
        ("CreateInstanceProfile", "AccessDenied", Failure.DENIED),
        ("CreateSecurityGroup", "UnauthorizedOperation", Failure.DENIED),
        ("RunInstances", "VcpuLimitExceeded", Failure.QUOTA),
        ("SendCommand", "AccessDeniedException", Failure.DENIED),
    ],
)
def test_what_aws_refuses_is_one_line_and_leaves_nothing(
    session: Ec2Session,
    tests: Path,
    agent: Callable[..., Agent],
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    code: str,
    failure: Failure,
) -> None:
    agent()
    refused(monkeypatch, operation, code)
    with pytest.raises(AwsError) as caught:
        measured(session, tests)
    assert caught.value.failure is failure
    assert operation in caught.value.action
    assert "\n" not in str(caught.value)
    assert "1234" * 3 not in str(caught.value)
    remove_all(session.run)
    assert left(session.run) == {}


@pytest.mark.parametrize(
    ("operation", "code"), [("CreateRole", "Throttling"), ("RunInstances", "RequestLimitExceeded")]
)
def test_throttling_is_waited_out(
    session: Ec2Session,
    tests: Path,
    agent: Callable[..., Agent],
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    code: str,
) -> None:
    agent()
    refused(monkeypatch, operation, code, times=3)
    (tests / "test_shop.py").write_text("def test_it(): pass")
    assert measured(session, tests) == 0


def test_a_profile_that_ec2_does_not_know_yet_is_waited_for(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent()
    refused(monkeypatch, "RunInstances", "InvalidParameterValue", times=2)
    (tests / "test_shop.py").write_text("def test_it(): pass")
    assert measured(session, tests) == 0


def test_a_role_of_that_name_that_is_not_ours_is_left_alone(
    session: Ec2Session, tests: Path, agent: Callable[..., Agent]
) -> None:
    agent()
    name = session.run.name("runner")
    session.run.clients.call("iam", REGION, "create_role", RoleName=name, AssumeRolePolicyDocument="{}")
    with pytest.raises(AwsError, match="it isn't this run's"):
        measured(session, tests)
    remove_all(session.run)
    assert [one["RoleName"] for one in left(session.run)["roles"]] == [name]


def test_a_password_does_not_travel(session: Ec2Session, tests: Path, nowhere: Target) -> None:
    from dataclasses import replace

    from pytest_dsql.connect.endpoint import PasswordAuth

    session.target = replace(nowhere, endpoint=replace(nowhere.endpoint, auth=PasswordAuth("geheim")))
    with pytest.raises(UsageError, match="sends no password") as caught:
        measured(session, tests)
    assert "geheim" not in str(caught.value)
    assert left(session.run) == {}


def test_a_type_that_no_zone_has_is_found_before_anything_is_created(session: Ec2Session, tests: Path) -> None:
    session.options = Ec2Options.of({"type": "z9x.large"}, plan="quick")
    with pytest.raises(UsageError, match=r"there is no z9x.large in us-east-1a"):
        measured(session, tests)
    assert left(session.run) == {}
