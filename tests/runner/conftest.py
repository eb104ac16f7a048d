"""An engine as the target, an account in another process, and machines that are processes here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.aws.failures import action_of
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.waiting import Clock
from pytest_dsql.connect.credentials import forget_credentials
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.local.client import Engine
from pytest_dsql.targets.target import Target
from tests.aws.conftest import aws_environment, emptied, moto_server
from tests.aws.killing import clients_made_once
from tests.runner.agent import Agent

__all__ = ["aws_environment", "clients_made_once"]


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an account in another process, which has AWS's own policies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        with moto_server(tmp_path_factory.mktemp("account")) as address:
            yield address


@pytest.fixture
def server(account: str, aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The account's address, when it is empty; boto3 goes there."""
    emptied(account)
    monkeypatch.setenv("AWS_ENDPOINT_URL", account)
    return account


class Fast:
    """A clock on which what is waited for takes a fraction of a second."""

    def __init__(self, longest_s: float = 0.2) -> None:
        self.longest_s = longest_s
        self.skipped = 0.0

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: time.monotonic() + self.skipped, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        really = min(seconds, self.longest_s)
        time.sleep(really)
        self.skipped += seconds - really


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as running:
        yield running


@pytest.fixture
def target(engine: Engine, aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Target:
    """The engine, reached with the keys of the environment as a cluster would be."""
    keys = engine.credentials
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret_access_key)
    forget_credentials()
    endpoint = Endpoint(
        host=engine.cluster.host,
        hostaddr="127.0.0.1",
        port=engine.port,
        region=engine.cluster.region,
        sslrootcert=str(engine.ca_file),
        auth=IamAuth(),
    )
    return Target(name="attach", endpoint=endpoint, tokens=TokenSource(endpoint), facts={"dialect": "dsql"})


@pytest.fixture
def nowhere() -> Target:
    """A cluster that nothing connects to: for sessions whose tests measure nothing."""
    endpoint = Endpoint("abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws", hostaddr="127.0.0.1")
    return Target(name="attach", endpoint=endpoint, tokens=TokenSource(endpoint), facts={"dialect": "dsql"})


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Agent]]:
    """Make the agent of this test's machines."""
    made: list[Agent] = []

    def make(**how: Any) -> Agent:
        one = Agent(tmp_path / "machines", **how)
        one.install(monkeypatch)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


#: Two cells of one transaction; the second is so long that something can happen meanwhile.
TESTS = """
import pytest
from pathlib import Path
from pytest_dsql import Latency, Mix, Slo, ms, transaction

SLO = Slo(reads=Latency(p95=ms(5000)))

@transaction(kind="read")
def one(ctx):
    yield "SELECT $1::bigint", (ctx.rng.randrange(100),)

MIX = Mix({one: 1.0})

@pytest.mark.dsql
@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_cell(dsql_load, seconds):
    Path(f"ran-{seconds}").touch()
    dsql_load.closed(MIX, connections=2, warmup=0.1, duration=seconds).assert_meets(SLO)
"""


def left(run: AwsRun) -> dict[str, Any]:
    """What is in the account."""
    calls: dict[str, tuple[str, str, str]] = {
        "buckets": ("s3", "list_buckets", "Buckets"),
        "roles": ("iam", "list_roles", "Roles"),
        "profiles": ("iam", "list_instance_profiles", "InstanceProfiles"),
        "groups": ("ec2", "describe_security_groups", "SecurityGroups"),
        "instances": ("ec2", "describe_instances", "Reservations"),
    }
    found = {name: list(run.clients.pages(one, "us-east-1", what, key)) for name, (one, what, key) in calls.items()}
    found["groups"] = [one for one in found["groups"] if one["GroupName"] != "default"]
    found["instances"] = [
        one
        for reservation in found["instances"]
        for one in reservation["Instances"]
        if one["State"]["Name"] != "terminated"
    ]
    return {name: items for name, items in found.items() if items}


def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set that the actions of all calls from now on are put into."""
    import botocore.client

    real = botocore.client.BaseClient._make_api_call
    actions: set[str] = set()

    def call(client: Any, name: str, parameters: Any) -> Any:
        actions.add(action_of(client.meta.service_model.signing_name, name))
        return real(client, name, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)
    return actions


def refused(monkeypatch: pytest.MonkeyPatch, operation: str, code: str, times: int = 100, status: int = 400) -> None:
    """Have an operation fail, as the service would."""
    import botocore.client
    from botocore.exceptions import ClientError

    real = botocore.client.BaseClient._make_api_call
    left = [times]

    def call(client: Any, name: str, parameters: Any) -> Any:
        if name == operation and left[0] > 0:
            left[0] -= 1
            answer = {
                "Error": {"Code": code, "Message": f"{code} of arn:aws:iam::{'1234' * 3}:user/me"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            }
            raise ClientError(answer, name)
        return real(client, name, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)
