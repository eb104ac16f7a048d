"""The state machine in moto, which runs it; its Lambda echoes the event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from pytest_dsql.aws.run import AwsRun
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.runner import database_role, state_machine
from pytest_dsql.runner.lambda_fleet import OWNER, deploy
from pytest_dsql.runner.machines import remove_all
from pytest_dsql.targets.target import Target
from pytest_dsql.workloads.inserts.workload import Inserts
from tests.runner.conftest import Fast, left

REGION = "us-east-1"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:pytest-dsql-x"


@pytest.fixture
def run(target: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsRun]:
    config: Any = {
        "core": {"mock_credentials": False},  # the engine knows those that there are
        "lambda": {"use_docker": False},
        "stepfunctions": {"execute_state_machine": True},
    }
    with mock_aws(config=config):
        # moto's clusters have ids of its own, so it knows nothing of the engine's.
        monkeypatch.setattr(database_role, "cluster", lambda *_arguments: {"status": "ACTIVE"})
        run = AwsRun.begin("20261130T100000Z-abcdef", OWNER, region=REGION)
        run.clock = Fast().clock()
        yield run


@pytest.fixture
def inserts(target: Target) -> Inserts:
    inserts = Inserts()
    inserts.load(target.connect, dialect="dsql")
    return inserts


def roles(target: Target) -> set[str]:
    with target.connect() as connection:
        return {str(one[0]) for one in connection.execute("SELECT rolname FROM pg_roles").fetchall()}


def test_it_fans_out_with_bounded_concurrency_and_answers_in_order(
    run: AwsRun, target: Target, inserts: Inserts
) -> None:
    before = roles(target)
    fleet = deploy(run, target, libraries=lambda: ())
    assert roles(target) - before == {"pytest_dsql_20261130t100000z_abcdef_function"}
    events: list[dict[str, Any]] = [{"slot": slot, "times": 1} for slot in range(60)]
    assert fleet.call(events, concurrency=50) == events
    [function] = run.clients.call("lambda", REGION, "list_functions")["Functions"]
    assert (function["MemorySize"], function["Architectures"]) == (1_769, ["arm64"])
    assert function["Runtime"] == "python3.13"
    remove_all(run)
    assert left(run) == {}
    assert run.clients.call("lambda", REGION, "list_functions")["Functions"] == []
    assert run.clients.call("stepfunctions", REGION, "list_state_machines")["stateMachines"] == []
    assert roles(target) == before


def test_the_function_may_only_log_in_to_the_named_cluster(run: AwsRun, target: Target, inserts: Inserts) -> None:
    deploy(run, target, libraries=lambda: ())
    name = run.name("function")
    assert run.clients.call("iam", REGION, "list_attached_role_policies", RoleName=name)["AttachedPolicies"] == []
    [policy] = run.clients.call("iam", REGION, "list_role_policies", RoleName=name)["PolicyNames"]
    found = run.clients.call("iam", REGION, "get_role_policy", RoleName=name, PolicyName=policy)["PolicyDocument"]
    [statement] = found["Statement"]
    assert statement["Action"] == ["dsql:DbConnect"]
    [resource] = statement["Resource"]
    assert resource.startswith("arn:aws:dsql:us-east-1:")
    assert resource.endswith(f":cluster/{target.endpoint.host.partition('.')[0]}")
    remove_all(run)


def test_the_database_role_may_insert_and_read_and_nothing_else(
    run: AwsRun, target: Target, inserts: Inserts, engine: Any
) -> None:
    """A session of the function's IAM role is the database role; another IAM role isn't."""
    import psycopg

    from pytest_dsql.connect.dialer import dial
    from pytest_dsql.connect.endpoint import IamAuth
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.errors import ConnectionFailed
    from pytest_dsql.runner.lambda_fleet import _as_role

    deploy(run, target, libraries=lambda: ())
    [entry] = [one for one in run.inventory.remaining if one.kind == "iam-role" and one.name.endswith("-function")]
    name = "pytest_dsql_20261130t100000z_abcdef_function"

    def as_principal(arn: str) -> Any:
        keys = engine.add_principal(arn, actions=["DbConnect"])
        from dataclasses import replace

        auth = IamAuth(
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
            session_token=keys.session_token,
        )
        endpoint = replace(_as_role(target.endpoint, name), auth=auth)
        return dial(endpoint, TokenSource(endpoint))[0]

    account, role = str(entry.arn).split(":")[4], str(entry.arn).rpartition("/")[2]
    with as_principal(f"arn:aws:sts::{account}:assumed-role/{role}/{role}") as connection:
        connection.autocommit = True
        connection.execute("INSERT INTO pytest_dsql_inserts.rows (data) VALUES ('x')")
        connection.execute("SELECT data FROM pytest_dsql_inserts.rows LIMIT 1")
        for refused in (
            "DELETE FROM pytest_dsql_inserts.rows",
            "SELECT * FROM pytest_dsql_inserts.cell_runs",
            "CREATE TABLE pytest_dsql_inserts.more (id int PRIMARY KEY)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(refused.encode())
    with pytest.raises(ConnectionFailed, match="access denied"):
        as_principal(f"arn:aws:sts::{account}:assumed-role/another/session")
    remove_all(run)


def test_calls_are_split_where_an_execution_has_no_room(run: AwsRun, target: Target, inserts: Inserts) -> None:
    fleet = deploy(run, target, libraries=lambda: ())
    events: list[dict[str, Any]] = [{"slot": slot, "times": 10_000} for slot in range(9)]
    assert fleet.call(events, concurrency=9) == events
    machine = run.clients.call("stepfunctions", REGION, "list_state_machines")["stateMachines"][0]["stateMachineArn"]
    executions = run.clients.call("stepfunctions", REGION, "list_executions", stateMachineArn=machine)["executions"]
    assert len(executions) == 2
    with pytest.raises(UsageError, match="times must be at most"):
        fleet.call([{"times": 100_000}], concurrency=1)
    remove_all(run)


def test_an_execution_that_fails_is_one_line(
    run: AwsRun, target: Target, inserts: Inserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # moto's Lambda never fails.
    failing = {"Type": "Fail", "Error": "Lambda.Unknown", "Cause": f"no\n{FUNCTION}"}
    monkeypatch.setattr(state_machine, "definition", lambda _arn: {"StartAt": "Fail", "States": {"Fail": failing}})
    fleet = deploy(run, target, libraries=lambda: ())
    with pytest.raises(DsqlError, match="the functions' calls ended as FAILED") as caught:
        fleet.call([{"times": 1}], concurrency=1)
    assert "\n" not in str(caught.value)
    assert run.clients.account not in str(caught.value)
    remove_all(run)


def test_only_what_has_not_begun_is_tried_again() -> None:
    """An insert that was tried twice could happen twice; children of express type may run twice by themselves."""
    fan_out = json.loads(json.dumps(state_machine.definition(FUNCTION)))["States"]["Fan out"]
    assert fan_out["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    call = fan_out["ItemProcessor"]["States"]["Call"]
    assert [one["ErrorEquals"] for one in call["Retry"]] == [["Lambda.TooManyRequestsException"]]
    assert call["Parameters"]["FunctionName"] == FUNCTION


def test_a_target_that_is_not_dsql_is_refused(run: AwsRun, target: Target) -> None:
    from dataclasses import replace

    from pytest_dsql.connect.endpoint import IamAuth

    other = replace(target.endpoint, auth=IamAuth(service="rds-db"), host="db.example", dialect="postgresql")
    with pytest.raises(UsageError, match="logs in with tokens of Aurora DSQL"):
        deploy(run, replace(target, endpoint=other))
    assert run.inventory.remaining == []
