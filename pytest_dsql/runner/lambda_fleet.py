"""`--dsql-runner lambda`: one function of AWS Lambda, called by a state machine, so many at once.

Sources: Lambda developer guide ("Configure Lambda function memory": 1,769 MB are one vCPU); Step Functions API
reference.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.run import AwsRun, life_of
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.masking import mask
from pytest_dsql.runner import database_role, state_machine
from pytest_dsql.runner.function import VARIABLE, described
from pytest_dsql.runner.functions import Answer, Event
from pytest_dsql.runner.grants import login_statements
from pytest_dsql.runner.machines import iam_role, reap_the_dead, remove_all
from pytest_dsql.runner.package import ARCHITECTURE, HANDLER, RUNTIME, Libraries, build_package

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

OWNER: Final = "runner-lambda"
#: One vCPU.
MEMORY_MB: Final = 1_769
#: The longest that a call may take: Lambda's own limit.
TIMEOUT_S: Final = 900
_ACTIVE_S: Final = 300.0
#: How long an execution may take beyond its calls' own limit: for starting functions and children.
_SLACK_S: Final = 600.0
#: Of an answer beside its durations (two bytes each, packed), in the output of an execution.
_ANSWER_BYTES: Final = 320
_OPERATION_BYTES: Final = 3
_EVENT_BYTES: Final = 220
#: A role that was just made can't be assumed yet: Lambda and Step Functions call that an invalid value.
_ROLE_SETTLES: Final = frozenset({Failure.INVALID, Failure.NOT_FOUND, Failure.DENIED})
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


@final
class LambdaFleet:
    """Functions of Lambda. Made by `deploy`."""

    place: Final = "lambda"

    def __init__(self, run: AwsRun, function: Entry, machine: Entry) -> None:
        self._run = run
        self._machine = machine
        self.region: Final = run.region
        self.function: Final = function.name  #: CloudWatch knows it by that

    def call(self, events: Sequence[Event], *, concurrency: int) -> list[Answer]:
        """As `Fleet.call`: executions of the state machine, as many events in each as its messages have room for."""
        times = max(int(one["times"]) for one in events)
        room = state_machine.MOST_BYTES // max(_EVENT_BYTES, _ANSWER_BYTES + _OPERATION_BYTES * times)
        if room < 1:
            raise UsageError(f"times must be at most {state_machine.MOST_BYTES // _OPERATION_BYTES - 200:,} in Lambda")
        answers: list[Answer] = []
        for first in range(0, len(events), room):
            answers += self._execution(events[first : first + room], concurrency)
        return answers

    def _execution(self, events: Sequence[Event], concurrency: int) -> list[Answer]:
        run = self._run
        run.check()
        # A name makes it idempotent: an answer that is lost, and asked for again, starts nothing twice.
        name = uuid.uuid4().hex

        def start() -> dict[str, Any]:
            return run.clients.call(
                "stepfunctions",
                run.region,
                "start_execution",
                stateMachineArn=self._machine.arn,
                name=name,
                input=json.dumps({"calls": list(events), "concurrency": concurrency}),
            )

        started = run.wait(start, what="starting the functions' calls", limit_s=_ACTIVE_S)

        def ended() -> dict[str, Any] | None:
            found = run.clients.call(
                "stepfunctions", run.region, "describe_execution", executionArn=started["executionArn"]
            )
            return None if found["status"] in ("RUNNING", "PENDING_REDRIVE") else found

        rounds = -(-len(events) // concurrency)
        found = run.wait(
            ended, what="the functions' calls", limit_s=rounds * TIMEOUT_S + _SLACK_S, first_s=0.5, longest_s=5.0
        )
        if found["status"] != "SUCCEEDED":
            said = found.get("cause") or found.get("error") or "it says no more"
            raise DsqlError(
                f"the functions' calls ended as {found['status']}: {mask(' '.join(str(said).split())[:500])}"
            )
        answers: list[Answer] = json.loads(found["output"])
        return answers

    def close(self) -> None:
        """Let go of nothing: what was deployed is the run's to remove."""


@contextmanager
def deployed(
    settings: Settings, target: Target, *, run_id: str, say: Callable[[str], None], libraries: Libraries | None = None
) -> Iterator[LambdaFleet]:
    """Deploy for a block, or use what another process of the run has deployed; the last one removes everything.

    Raises as `deploy` and `remove_all` do.
    """
    check_target(target)
    for key in settings.runner_option:
        if key != "life":
            raise UsageError(f"--dsql-runner-option {key}: --dsql-runner lambda has life")
    reap_the_dead(say)
    run = AwsRun.begin(
        run_id,
        OWNER,
        region=target.endpoint.region,
        profile=settings.profile,
        role=settings.role,
        life=life_of(settings.target_option, settings.runner_option),
        say=say,
    )
    try:
        with run.inventory.alone(f"opening-{OWNER}"):
            fleet = deploy(run, target, libraries=libraries)
        yield fleet
    finally:
        remove_all(run)


def deploy(run: AwsRun, target: Target, *, libraries: Libraries | None = None) -> LambdaFleet:
    """Make roles, function and state machine, and let the function log in to the target. Safe to repeat.

    The workload must be loaded: the function's database role gets rights on its table. Raises UsageError, AwsError,
    DsqlError or WaitedInVain.
    """
    endpoints = check_target(target)
    package = build_package(libraries)
    account, partition = run.clients.account, run.clients.partition(run.region)
    name = run.name("function").replace("-", "_")
    as_function = {region: _as_role(one, name) for region, one in endpoints.items()}
    logins = login_statements(list(as_function.values()), account=account, partition=partition)
    role = iam_role(run, "function", _TRUST, logins)
    _database_role(run, target, name, role)
    function = _function(run, package, role, as_function)
    machine_name = run.name("functions")
    arn = f"arn:{partition}:states:{run.region}:{account}:stateMachine:{machine_name}"
    calling = iam_role(
        run, "states", state_machine.TRUST, state_machine.statements(function_arn=str(function.arn), machine_arn=arn)
    )
    machine = _machine(run, machine_name, str(function.arn), calling)
    return LambdaFleet(run, function, machine)


def check_target(target: Target) -> dict[str, Endpoint]:
    """Return the target's endpoints by Region, the first one first. Raises UsageError for one that isn't DSQL."""
    from pytest_dsql.connect.endpoint import IamAuth

    first = target.endpoint
    if not isinstance(first.auth, IamAuth) or first.auth.service != "dsql":
        raise UsageError("--dsql-runner lambda logs in with tokens of Aurora DSQL, and the target takes others")
    if first.user != "admin":
        raise UsageError("--dsql-runner lambda makes a database role for the function, which only admin may")
    return {str(first.region): first, **target.regions}


def _as_role(endpoint: Endpoint, name: str) -> Endpoint:
    from dataclasses import replace

    from pytest_dsql.connect.endpoint import IamAuth

    local = endpoint.hostaddr if endpoint.hostaddr and endpoint.hostaddr.startswith("127.") else None
    return replace(endpoint, user=name, auth=IamAuth(), hostaddr=local)


def _database_role(run: AwsRun, target: Target, name: str, role: Entry) -> None:
    def call(entry: Entry) -> Made:
        with target.connect() as admin:
            database_role.grant(admin, entry.name, str(role.arn))
        return Made(entry.name)

    run.create(
        database_role.DatabaseRole.kind,
        name,
        call,
        where=database_role.where(target.endpoint),
        cluster=target.endpoint.host.partition(".")[0],
    )


def _function(run: AwsRun, package: bytes, role: Entry, endpoints: Mapping[str, Endpoint]) -> Entry:
    entry = run.create_by(
        "lambda",
        "create_function",
        "lambda-function",
        run.name("function"),
        lambda entry: {
            "FunctionName": entry.name,
            "Runtime": RUNTIME,
            "Architectures": [ARCHITECTURE],
            "Role": role.arn,
            "Handler": HANDLER,
            "Code": {"ZipFile": package},
            "Description": "pytest-dsql: single inserts and reads",
            "Timeout": TIMEOUT_S,
            "MemorySize": MEMORY_MB,
            "Environment": {"Variables": {VARIABLE: described(endpoints)}},
            "Tags": run.tags(entry),
        },
        ("FunctionArn",),
        again_on=_ROLE_SETTLES,
    )

    def active() -> bool | None:
        found = run.clients.call("lambda", run.region, "get_function_configuration", FunctionName=entry.name)
        if found.get("State", "Active") == "Failed":
            raise DsqlError(f"{entry} failed to start: {mask(str(found.get('StateReason', 'it says no more')))}")
        return found.get("State", "Active") == "Active" or None

    run.wait(active, what=f"{entry} becoming active", limit_s=_ACTIVE_S)
    return entry


def _machine(run: AwsRun, name: str, function_arn: str, role: Entry) -> Entry:
    return run.create_by(
        "stepfunctions",
        "create_state_machine",
        "state-machine",
        name,
        lambda entry: {
            "name": entry.name,
            "definition": json.dumps(state_machine.definition(function_arn)),
            "roleArn": role.arn,
            "type": "STANDARD",
            "tags": [{"key": key, "value": value} for key, value in run.tags(entry).items()],
        },
        ("stateMachineArn",),
        again_on=_ROLE_SETTLES,
    )
