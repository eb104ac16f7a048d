"""AWS refuses or does not answer for a while, hours into a run: it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.waiting import Clock, WaitedInVain
from pytest_dsql.runner import there
from pytest_dsql.runner.ec2 import OWNER, Ec2Session, MachineLost
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.runner.store import RESULTS, Store
from pytest_dsql.runner.there import STATUS
from pytest_dsql.settings import Settings
from pytest_dsql.targets.target import Target
from tests.runner.conftest import refused

REGION = "us-east-1"
RUN = "20261130T100000Z-abcdef"
BUCKET = "pytest-dsql-bucket"
COMMAND = "00000001-0000-4000-8000-000000000000"
STATES = {"state": "finished", "exit": 0}


class Skipping:
    """A clock whose pauses take no time; `at[n]` happens in its n-th pause."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses = 0
        self.at: dict[int, Callable[[], object]] = {}

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses += 1
        self.at.get(self.pauses, lambda: None)()

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.seconds, sleep=self.sleep)


@pytest.fixture
def time() -> Skipping:
    return Skipping()


@pytest.fixture
def session(aws_environment: dict[str, str], nowhere: Target, tmp_path: Path, time: Skipping) -> Iterator[Ec2Session]:
    with mock_aws():
        run = AwsRun.begin(RUN, OWNER, region=REGION)
        run.clock = time.clock()
        run.clients.call("s3", REGION, "create_bucket", Bucket=BUCKET)
        settings = Settings(target="attach", endpoint="x.dsql.us-east-1.on.aws", runner="ec2", budget=1.0)
        options = Ec2Options.of({}, plan="quick")
        yield Ec2Session(run, options, settings, nowhere, tmp_path / "results", show=lambda _text: None)


@pytest.fixture
def store(session: Ec2Session) -> Store:
    return Store(session.run.clients, REGION, BUCKET)


@pytest.fixture
def machine(session: Ec2Session) -> Entry:
    run = session.run
    entry = run.inventory.intend("ec2-instance", REGION, run.name("runner-1"), owner=OWNER)
    tags = [{"ResourceType": "instance", "Tags": run.tag_list(entry)}]
    made = run.clients.call(
        "ec2", REGION, "run_instances", ImageId="ami-12c6146b", MinCount=1, MaxCount=1, TagSpecifications=tags
    )
    return run.inventory.created(entry, made["Instances"][0]["InstanceId"])


@pytest.mark.parametrize(
    ("operation", "code", "status"),
    [
        ("GetObject", "SlowDown", 503),
        ("DescribeInstances", "Unavailable", 503),
        ("GetCommandInvocation", "ThrottlingException", 400),
    ],
)
def test_a_session_is_followed_through_an_outage(
    session: Ec2Session,
    store: Store,
    machine: Entry,
    time: Skipping,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    code: str,
    status: int,
) -> None:
    time.at[8] = lambda: store.put_json(f"m/{STATUS}", STATES)
    command = session._send(store, machine, "m/")
    refused(monkeypatch, operation, code, times=5, status=status)
    assert session._follow(store, machine, "m/", command) == STATES
    assert time.pauses == 8


def test_an_outage_that_does_not_end_ends_the_run(
    session: Ec2Session, store: Store, machine: Entry, time: Skipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(monkeypatch, "GetObject", "SlowDown", times=10_000, status=503)
    with pytest.raises(AwsError, match="s3:GetObject"):
        session._follow(store, machine, "m/", COMMAND)
    assert 900 <= time.seconds < 1000


def test_what_does_not_pass_ends_it_at_once(
    session: Ec2Session, store: Store, machine: Entry, time: Skipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(monkeypatch, "GetObject", "AccessDenied", status=403)
    with pytest.raises(AwsError, match="s3:GetObject"):
        session._follow(store, machine, "m/", COMMAND)
    assert time.pauses == 0


def test_results_are_fetched_through_an_outage(
    session: Ec2Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(f"{RESULTS}results.json", b"{}")
    refused(monkeypatch, "ListObjectsV2", "SlowDown", times=3, status=503)
    refused(monkeypatch, "GetObject", "InternalError", times=3, status=500)
    session._fetch(store, whole=True)
    assert (session.results / "results.json").read_bytes() == b"{}"


def test_a_machine_is_ended_through_an_outage(
    session: Ec2Session, machine: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(monkeypatch, "TerminateInstances", "RequestLimitExceeded", times=3, status=503)
    session._terminate(machine)
    [found] = session.run.clients.call("ec2", REGION, "describe_instances")["Reservations"]
    assert found["Instances"][0]["State"]["Name"] == "terminated"


def test_a_command_that_may_have_been_sent_is_not_sent_twice(
    session: Ec2Session, store: Store, machine: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(monkeypatch, "SendCommand", "InternalServerError", status=500)
    with pytest.raises(MachineLost, match="its command got no answer"):
        session._send(store, machine, "m/")


def test_an_answer_that_breaks_off_is_a_failure_that_passes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ReadTimeoutError
    from botocore.response import StreamingBody

    store.put("x", b"1")

    def broken(_body: StreamingBody, amt: int | None = None) -> bytes:
        raise ReadTimeoutError(endpoint_url="https://x.s3.amazonaws.com/x")

    monkeypatch.setattr(StreamingBody, "read", broken)
    with pytest.raises(AwsError, match="s3:GetObject") as caught:
        store.get("x")
    assert caught.value.failure is Failure.UNREACHABLE


class Flaky:
    """A bucket that refuses so many objects."""

    def __init__(self, store: Store, times: int) -> None:
        self.store = store
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, key: str, content: bytes) -> None:
        if self.times > 0:
            self.times -= 1
            raise AwsError("slow", failure=Failure.THROTTLED, code="SlowDown", action="s3:PutObject", region=REGION)
        self.store.put(key, content)


@pytest.mark.parametrize("times", [2, 10_000])
def test_the_machines_session_outlives_an_outage_of_its_bucket(
    store: Store, time: Skipping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    from pytest_dsql.runner.job import Job

    job = Job(RUN, {}, ("-c", "/dev/null", "--version"), ".", {})
    monkeypatch.setattr(there, "prepare", lambda _store, folder: (replace(job), folder))
    monkeypatch.setattr("signal.signal", lambda *_arguments: None)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    flaky: Any = Flaky(store, times)

    def go() -> dict[str, object]:
        return there.run(flaky, "m/", tmp_path, notice=lambda: False, sync_s=0.01, clock=time.clock())

    if times > 100:
        with pytest.raises(WaitedInVain, match="sending the results"):
            go()
    else:
        assert go() == STATES
        assert store.get_json(f"m/{STATUS}") == STATES
