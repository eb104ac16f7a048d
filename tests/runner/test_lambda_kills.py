"""A SIGKILL at every step of deploying and removing the function leaves nothing, in the account and in the database."""

from __future__ import annotations

import pytest

from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.policies import actions
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.resources import resource
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.runner import database_role
from pytest_dsql.runner.grants import LAMBDA_ACTIONS
from pytest_dsql.runner.lambda_fleet import OWNER, deploy
from pytest_dsql.runner.machines import remove_all
from pytest_dsql.targets.target import Target
from pytest_dsql.workloads.inserts.workload import Inserts
from tests.aws.killing import kills
from tests.runner.conftest import Fast, called, left

REGION = "us-east-1"


@pytest.fixture
def loaded(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target whose table is there; moto's clusters have ids of its own, so it knows nothing of the engine's."""
    monkeypatch.setattr(database_role, "cluster", lambda *_arguments: {"status": "ACTIVE"})
    Inserts().load(target.connect, dialect="dsql")
    return target


def roles(target: Target) -> set[str]:
    with target.connect() as connection:
        return {str(one[0]) for one in connection.execute("SELECT rolname FROM pg_roles").fetchall()}


def deployed(run: AwsRun) -> list[str]:
    functions = run.clients.call("lambda", REGION, "list_functions")["Functions"]
    machines = run.clients.call("stepfunctions", REGION, "list_state_machines")["stateMachines"]
    return [one["FunctionName"] for one in functions] + [one["name"] for one in machines]


def test_function_and_state_machine(server: str, clients_made_once: None, loaded: Target) -> None:
    before = roles(loaded)

    def it_comes_and_goes() -> None:
        run = AwsRun.begin("run-1", OWNER, region=REGION)
        run.clock = Fast(0.0).clock()
        deploy(run, loaded, libraries=lambda: ())
        remove_all(run)

    run = AwsRun.begin("other", OWNER, region=REGION)
    run.inventory.close()
    for when in kills(it_comes_and_goes):
        removal = reap(clock=Fast(0.0).clock(), settling_s=0.0)
        assert removal.remaining == [], when
        assert left(run) == {}, when
        assert deployed(run) == [], when
        assert inventories() == [], when
        assert roles(loaded) == before, when


def test_what_is_left_is_found_by_its_tags(server: str, loaded: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = called(monkeypatch)
    run = AwsRun.begin("run-1", OWNER, region=REGION)
    run.clock = Fast().clock()
    deploy(run, loaded, libraries=lambda: ())
    for kind in ("lambda-function", "state-machine"):
        [found] = resource(kind).scan(run.clients, REGION)
        [known] = [one for one in run.inventory.remaining if one.kind == kind]
        assert (found.run, found.arn, found.name) == ("run-1", known.arn, known.name)
        assert resource(kind).scan(run.clients, "eu-west-1") == []
    remove_all(run)
    assert asked - actions(LAMBDA_ACTIONS) == {"sts:GetCallerIdentity"}, "the policy allows all that is called"
    assert deployed(run) == []


def test_a_role_in_a_cluster_that_is_gone_is_gone(server: str, loaded: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    run = AwsRun.begin("run-1", OWNER, region=REGION)
    run.clock = Fast(0.0).clock()
    deploy(run, loaded, libraries=lambda: ())
    [entry] = [one for one in run.inventory.remaining if one.kind == database_role.DatabaseRole.kind]
    monkeypatch.setattr(database_role, "cluster", lambda *_arguments: None)
    remove_all(run)
    assert inventories() == []
    assert entry.name in roles(loaded), "nobody asked the database"
    monkeypatch.setattr(database_role, "cluster", lambda *_arguments: {"status": "ACTIVE"})
    resource(entry.kind).delete(run.clients, entry)
    assert entry.name not in roles(loaded)
