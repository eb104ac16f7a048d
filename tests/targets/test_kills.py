"""SIGKILL at every create and delete step, and what reap leaves: nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from pytest_dsql.aws import resources
from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.verifying import reap_all, survey
from pytest_dsql.aws.waiting import Clock
from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.settings import Settings
from pytest_dsql.targets import created, dsql
from pytest_dsql.targets.target import Target
from tests.aws.conftest import emptied, moto_server
from tests.aws.killing import Steps, in_a_child, killed, kills

REGIONS = ("us-east-1", "us-east-2")


QUICK = Clock(sleep=lambda _seconds: time.sleep(0.01))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account answers at once: nobody has to wait as long as for the real one, nor to connect."""
    real = created.begin

    def begin(chosen: Settings, *, run_id: str, say: Callable[[str], None]) -> AwsRun:
        run = real(chosen, run_id=run_id, say=say)
        run.clock = QUICK
        return run

    monkeypatch.setattr(created, "begin", begin)
    monkeypatch.setattr(dsql, "connected", unconnected)
    # Nothing else is made here, and looking for it takes its time.
    only = {"dsql-cluster": resources.KINDS["dsql-cluster"]}
    monkeypatch.setattr(resources, "KINDS", only)
    monkeypatch.setattr("pytest_dsql.aws.verifying.KINDS", only)


@pytest.fixture(scope="module")
def surviving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """moto with what it lacks of DSQL, in a process that outlives whoever is killed."""
    with moto_server(tmp_path_factory.mktemp("moto"), "tests.aws.dsql_service") as address:
        yield address


@pytest.fixture
def dsql_server(
    surviving: str, aws_environment: dict[str, str], clients_made_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That account, empty."""
    emptied(surviving)
    monkeypatch.setenv("AWS_ENDPOINT_URL", surviving)


def settings(target: str, *options: str) -> Settings:
    return Settings.resolve(
        command_line={"target": target, "region": "us-east-1", "budget": "1", "target_option": list(options)},
        environment={},
        ini={},
        check_set=lambda _settings: None,
    )


ONE = settings("dsql")
TWO = settings("dsql-multi-region", "peer=us-east-2", "witness=us-west-2")


def unconnected(chosen: Settings, endpoints: dict[str, Endpoint], first: str) -> Target:
    """The account is what matters here: nothing listens at these addresses."""
    return Target(name=chosen.target, endpoint=endpoints[first], tokens=TokenSource(endpoints[first]), facts={})


def names_of_one() -> list[str]:
    """The steps of a whole life of one cluster."""
    status, names = in_a_child(lambda: created.open_created(ONE, run_id="undisturbed").close())
    assert status == 0
    return names


def clusters() -> list[str]:
    clients = Clients()
    return [one["arn"] for region in REGIONS for one in clients.pages("dsql", region, "list_clusters", "clusters")]


@pytest.mark.parametrize("chosen", [ONE, TWO], ids=["dsql", "dsql-multi-region"])
def test_reap_leaves_nothing_wherever_a_session_was_killed(
    chosen: Settings, dsql_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0
    for where in kills(lambda: created.open_created(chosen, run_id="run-1").close()):
        there = len(clusters())
        left += there
        assert there == 0 or where != "undisturbed"
        removal, after = reap_all(settling_s=0.0, clock=QUICK)
        assert (removal.remaining, after.remaining, after.doubts) == ([], [], []), where
        assert clusters() == [], where
        assert inventories() == [], where
    assert left >= 3, "most kills must have left something behind, or this test shows nothing"


def test_reap_leaves_nothing_when_reap_itself_was_killed(dsql_server: None) -> None:
    def leave_behind() -> None:
        created.open_created(TWO, run_id="run-1")
        os.kill(os.getpid(), signal.SIGKILL)

    def reap_it() -> None:
        reap(settling_s=0.0, clock=QUICK)

    for step in range(1, 6):
        assert in_a_child(leave_behind)[0] == -signal.SIGKILL
        assert len(clusters()) == 2
        status, names = in_a_child(reap_it, Steps(step))
        removal, after = reap_all(settling_s=0.0, clock=QUICK)
        assert (removal.remaining, after.remaining) == ([], []), step
        assert clusters() == [], step
    assert status == 0, "two deletions and their notes: the fifth step didn't come"
    assert len(names) == 4


def test_the_next_start_removes_what_a_killed_session_left(dsql_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(lambda: created.open_created(ONE, run_id="killed"), 1 + names_of_one().index("writing note"))
    (old,) = clusters()
    said: list[str] = []
    target = created.open_created(ONE, run_id="next", say=said.append)
    try:
        (new,) = clusters()
        assert new != old
        assert any("removed dsql-cluster pytest-dsql-killed-dsql" in one for one in said)
        assert [one.state for one in survey().found] == ["its run goes on"]
        assert survey().remaining == []
    finally:
        target.close()
    assert clusters() == []


def test_a_second_job_never_removes_the_firsts_clusters(dsql_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = created.open_created(ONE, run_id="first")
    (theirs,) = clusters()

    def second_job() -> None:
        reap_all(settling_s=0.0, clock=QUICK)
        reap_all(run="first", lost=True, settling_s=0.0, clock=QUICK)
        second = created.open_created(ONE, run_id="second")
        assert len(clusters()) == 2
        second.close()

    assert in_a_child(second_job)[0] == 0
    assert clusters() == [theirs]
    first.close()
    assert clusters() == []
