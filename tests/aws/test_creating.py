"""Creating and removing, in an account of moto's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry, Inventory, inventories
from pytest_dsql.aws.reaper import reap, remove
from pytest_dsql.aws.run import AwsRun, life_of
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.verifying import KEPT, LEFT, survey
from pytest_dsql.aws.waiting import Clock, WaitedInVain
from pytest_dsql.errors import ConnectionFailed, UsageError
from tests.aws.answers import answer, answering

REGION = "us-east-1"


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)
        self.slept: list[float] = []

    def clock(self) -> Clock:
        return Clock(monotonic=self.monotonic, sleep=self.sleep, now=lambda: self.at)

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def run(account: None) -> AwsRun:
    run = AwsRun.begin("run-1", "dsql", region=REGION)
    run.clock = Hours().clock()
    return run


def cluster_call(run: AwsRun) -> Callable[[Entry], Made]:
    def call(entry: Entry) -> Made:
        made = run.clients.call(
            "dsql",
            REGION,
            "create_cluster",
            deletionProtectionEnabled=False,
            clientToken=entry.token,
            tags=run.tags(entry),
        )
        return Made(made["arn"])

    return call


def clusters(run: AwsRun) -> list[Any]:
    return list(run.clients.pages("dsql", REGION, "list_clusters", "clusters"))


def test_what_is_created_is_removed(run: AwsRun) -> None:
    entry = run.create("dsql-cluster", run.name("dsql"), cluster_call(run))
    assert entry.arn
    assert len(clusters(run)) == 1
    removal = run.remove()
    assert [one.number for one in removal.removed] == [entry.number]
    assert removal.remaining == []
    assert clusters(run) == []


def test_the_intent_is_on_disk_before_the_call(run: AwsRun) -> None:
    seen: list[list[Entry]] = []

    def call(entry: Entry) -> Made:
        seen.append(Inventory.read(run.inventory.path).remaining)
        return cluster_call(run)(entry)

    made = run.create("dsql-cluster", "one", call)
    assert [[one.token for one in entries] for entries in seen] == [[made.token]]
    assert run.inventory.path.stat().st_mode & 0o777 == 0o600


def test_a_cluster_is_found_although_the_answer_was_lost(run: AwsRun) -> None:
    class Lost(Exception):
        pass

    def call(entry: Entry) -> Made:
        cluster_call(run)(entry)
        raise Lost

    with pytest.raises(Lost):
        run.create("dsql-cluster", "one", call)
    assert len(clusters(run)) == 1
    assert run.remove().remaining == []
    assert clusters(run) == []


def test_throttling_is_waited_out_with_the_same_token(run: AwsRun) -> None:
    tokens: list[str] = []

    def call(entry: Entry) -> Made:
        tokens.append(entry.token)
        if len(tokens) < 4:
            raise AwsError(
                "throttled",
                failure=Failure.THROTTLED,
                code="ThrottlingException",
                action="dsql:CreateCluster",
                region="",
            )
        return cluster_call(run)(entry)

    run.create("dsql-cluster", "one", call)
    assert len(tokens) == 4
    assert len(set(tokens)) == 1
    assert len(clusters(run)) == 1


@pytest.mark.parametrize("failure", [Failure.DENIED, Failure.QUOTA, Failure.INVALID])
def test_a_refused_create_leaves_nothing_to_remove(run: AwsRun, failure: Failure) -> None:
    def call(_entry: Entry) -> Made:
        raise AwsError("no", failure=failure, code="No", action="dsql:CreateCluster", region=REGION)

    with pytest.raises(AwsError, match="no"):
        run.create("dsql-cluster", "one", call)
    assert run.inventory.remaining == []


def test_an_unanswered_create_is_still_looked_for(run: AwsRun) -> None:
    def call(entry: Entry) -> Made:
        cluster_call(run)(entry)
        raise AwsError("?", failure=Failure.UNREACHABLE, code="ReadTimeoutError", action="a:B", region=REGION)

    with pytest.raises(WaitedInVain):
        run.create("dsql-cluster", "one", call)
    assert len(clusters(run)) == 1, "each try has the same client token"
    assert run.remove().remaining == []
    assert clusters(run) == []


def test_a_taken_name_that_is_not_ours_is_left_alone(run: AwsRun) -> None:
    run.clients.call("dsql", REGION, "create_cluster", deletionProtectionEnabled=False, tags={"Name": "one"})

    def call(_entry: Entry) -> Made:
        raise AwsError("taken", failure=Failure.TAKEN, code="Exists", action="a:B", region=REGION)

    with pytest.raises(AwsError, match="it isn't this run's, so it is left alone"):
        run.create("dsql-cluster", "one", call)
    assert run.inventory.remaining == []
    assert len(clusters(run)) == 1


def test_nothing_is_created_after_the_maximum_life(run: AwsRun) -> None:
    hours = Hours()
    hours.at += timedelta(hours=13)
    run.clock = hours.clock()
    with pytest.raises(Exception, match="maximum life"):
        run.create("dsql-cluster", "one", cluster_call(run))


def test_a_second_job_leaves_a_running_job_alone(run: AwsRun) -> None:
    run.create("dsql-cluster", "one", cluster_call(run))
    assert reap(clock=Hours().clock()).removed == []
    assert len(clusters(run)) == 1
    run.inventory.close()  # its process is gone
    assert len(reap(clock=Hours().clock()).removed) == 1
    assert clusters(run) == []


def test_an_expired_run_is_removed_although_it_runs(run: AwsRun) -> None:
    run.create("dsql-cluster", "one", cluster_call(run))
    hours = Hours()
    hours.at += timedelta(hours=13)
    assert len(reap(clock=hours.clock()).removed) == 1
    assert clusters(run) == []


def test_another_accounts_run_is_left_and_said(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run.create("dsql-cluster", "one", cluster_call(run))
    run.inventory.close()
    monkeypatch.setattr("pytest_dsql.aws.sessions.Clients.account", "999999999999")
    removal = reap(clock=Hours().clock())
    assert removal.removed == []
    assert "another AWS account" in removal.remaining[0][1]
    assert "999999999999" not in removal.remaining[0][1]


def test_a_failed_removal_does_not_keep_the_others(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    first = run.create("dsql-cluster", "first", cluster_call(run))
    second = run.create("dsql-cluster", "second", cluster_call(run))
    real = DsqlCluster.delete

    def delete(self: DsqlCluster, clients: Any, entry: Entry) -> None:
        if entry.number == first.number:
            raise AwsError("denied", failure=Failure.DENIED, code="AccessDenied", action="a:B", region=REGION)
        real(self, clients, entry)

    monkeypatch.setattr(DsqlCluster, "delete", delete)
    removal = run.remove()
    assert [one.number for one in removal.removed] == [second.number]
    assert [(one.number, reason) for one, reason in removal.remaining] == [(first.number, "denied")]
    assert [one.number for one in run.inventory.remaining] == [first.number]


def test_a_conflict_is_tried_again(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    run.create("dsql-cluster", "one", cluster_call(run))
    real = DsqlCluster.delete
    tries = []

    def delete(self: DsqlCluster, clients: Any, entry: Entry) -> None:
        tries.append(entry.number)
        if len(tries) < 3:
            raise AwsError("busy", failure=Failure.CONFLICT, code="ConflictException", action="a:B", region=REGION)
        real(self, clients, entry)

    monkeypatch.setattr(DsqlCluster, "delete", delete)
    assert run.remove().remaining == []
    assert len(tries) == 3


def test_what_is_not_seen_yet_is_waited_for(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create call that was killed may have been accepted a moment ago: "there is none" proves nothing yet."""
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    entry = run.inventory.intend("dsql-cluster", REGION, "one", owner="dsql")
    real = DsqlCluster.find
    looks = []

    def find(self: DsqlCluster, clients: Any, entry: Entry) -> str | None:
        looks.append(1)
        if len(looks) == 4:
            cluster_call(run)(entry)
        return real(self, clients, entry)

    monkeypatch.setattr(DsqlCluster, "find", find)
    removal = remove(run.clients, run.inventory, clock=run.clock)
    assert [one.number for one in removal.removed] == [entry.number]
    assert len(looks) == 4
    assert clusters(run) == []


def refusing(failure: Failure, code: str = "No") -> AwsError:
    return AwsError("no", failure=failure, code=code, action="dsql:CreateCluster", region=REGION)


def test_a_refusal_after_a_lost_answer_proves_nothing(run: AwsRun) -> None:
    tries: list[int] = []

    def call(entry: Entry) -> Made:
        tries.append(1)
        if len(tries) == 1:
            cluster_call(run)(entry)
            raise refusing(Failure.UNREACHABLE)
        raise refusing(Failure.CREDENTIALS, "ExpiredToken")

    with pytest.raises(AwsError, match="no"):
        run.create("dsql-cluster", "one", call)
    assert len(clusters(run)) == 1
    assert len(run.inventory.remaining) == 1
    assert run.remove().remaining == []
    assert clusters(run) == []


def test_a_refusal_after_a_lost_answer_within_botocore_proves_nothing(
    run: AwsRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore sends a request again by itself, and tells of the last answer alone."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    answers = iter([answer(503, "ServiceUnavailableException", "?"), answer(403, "ExpiredTokenException", "expired")])
    with answering("dsql.CreateCluster", lambda: next(answers)) as given, pytest.raises(AwsError) as caught:
        run.create("dsql-cluster", "one", cluster_call(run))
    assert given == [503, 403]
    assert caught.value.failure is Failure.CREDENTIALS
    assert len(run.inventory.remaining) == 1


def test_another_processs_unfinished_try_is_not_struck_out_by_a_refusal(run: AwsRun) -> None:
    run.inventory.intend("dsql-cluster", REGION, "one", owner="dsql")  # and that process was killed

    def call(_entry: Entry) -> Made:
        raise refusing(Failure.DENIED)

    with pytest.raises(AwsError, match="no"):
        run.create("dsql-cluster", "one", call)
    assert len(run.inventory.remaining) == 1


def test_a_call_whose_second_step_is_refused_is_still_removed(run: AwsRun) -> None:
    def call(entry: Entry) -> Made:
        cluster_call(run)(entry)
        raise refusing(Failure.DENIED)

    with pytest.raises(AwsError, match="no"):
        run.create("dsql-cluster", "one", call)
    assert len(clusters(run)) == 1
    assert run.remove().remaining == []
    assert clusters(run) == []


def test_a_refused_create_stays_where_nobody_can_look(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    def find(_self: DsqlCluster, _clients: Any, _entry: Entry) -> str | None:
        raise refusing(Failure.CREDENTIALS)

    def call(_entry: Entry) -> Made:
        raise refusing(Failure.DENIED, "AccessDenied")

    monkeypatch.setattr(DsqlCluster, "find", find)
    with pytest.raises(AwsError) as caught:
        run.create("dsql-cluster", "one", call)
    assert caught.value.code == "AccessDenied", "the refusal is told, not that nobody could look"
    assert len(run.inventory.remaining) == 1


def test_what_was_tried_for_long_is_waited_for_from_the_last_try(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes after the intent its last try may have been carried out a moment ago."""
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    real = DsqlCluster.find
    looks: list[int] = []

    def find(self: DsqlCluster, clients: Any, entry: Entry) -> str | None:
        looks.append(1)
        if len(looks) == 3:
            cluster_call(run)(entry)
        return real(self, clients, entry)

    def call(_entry: Entry) -> Made:
        raise refusing(Failure.UNREACHABLE)

    monkeypatch.setattr(DsqlCluster, "find", find)
    with pytest.raises(WaitedInVain):
        run.create("dsql-cluster", "one", call)
    assert run.remove().remaining == []
    assert len(looks) >= 3
    assert clusters(run) == []


def test_what_was_just_created_and_is_not_seen_yet_is_not_taken_for_gone(
    run: AwsRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with its ARN: EC2 answers a removal right after the creation with "not found"."""
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster

    run.create("dsql-cluster", "one", cluster_call(run))
    looks: list[int] = []
    real = {name: getattr(DsqlCluster, name) for name in ("find", "delete", "gone")}

    def unseen(name: str, answer: Any) -> Callable[..., Any]:
        def method(self: DsqlCluster, clients: Any, entry: Entry) -> Any:
            looks.append(1)
            return answer if len(looks) < 4 else real[name](self, clients, entry)

        return method

    for name, said in (("find", None), ("delete", None), ("gone", True)):
        monkeypatch.setattr(DsqlCluster, name, unseen(name, said))
    assert run.remove().remaining == []
    assert clusters(run) == []


def test_only_the_kept_target_of_a_run_is_left_alone(run: AwsRun) -> None:
    """A machine that could not be terminated, or a second target that was made by half, isn't kept by that."""
    kept = run.create("dsql-cluster", "kept", cluster_call(run))
    other = AwsRun.begin("run-1", "ec2-runner", region=REGION)
    other.clock = Hours().clock()
    left = other.create("dsql-cluster", "left", cluster_call(other))
    run.inventory.keep(run.owner)
    other.close()
    run.close()
    states = {one.entry.arn: one.state for one in survey().found}
    assert states == {kept.arn: KEPT, left.arn: LEFT}
    removal = reap(clock=Hours().clock())
    assert [one.arn for one in removal.removed] == [left.arn]
    assert [one["arn"] for one in clusters(run)] == [kept.arn]
    assert reap(clock=Hours().clock()).removed == []
    assert [one.arn for one in reap(run="run-1", clock=Hours().clock()).removed] == [kept.arn]
    assert clusters(run) == []


class InTheCluster:
    """What is in a database that takes no connections, until its cluster is gone."""

    kind: Final = "tests.aws.test_creating:InTheCluster"
    rank: Final = 80

    def find(self, _clients: Clients, entry: Entry) -> str | None:
        return entry.name

    def delete(self, clients: Clients, _entry: Entry) -> None:
        if list(clients.pages("dsql", REGION, "list_clusters", "clusters")):
            raise ConnectionFailed("no answer from arn:aws:dsql:us-east-1:111122223333:cluster/x", phase="tcp")

    def gone(self, _clients: Clients, _entry: Entry) -> bool:
        return True

    def scan(self, _clients: Clients, _region: str) -> list[Entry]:
        return []


def test_what_is_in_a_database_goes_with_its_cluster(run: AwsRun) -> None:
    run.create("dsql-cluster", "one", cluster_call(run))
    run.create(InTheCluster.kind, "role", lambda entry: Made(entry.name))
    start = run.clock.now()
    removal = run.remove()
    assert removal.remaining == []
    assert len(removal.removed) == 2
    assert run.clock.now() - start < timedelta(minutes=1), "the cluster, which costs money, is not kept waiting"
    run.close()
    assert inventories() == []


def test_why_something_remains_is_told_without_the_account(run: AwsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "AWS IAM REVOKE app FROM 'arn:aws:iam::111122223333:role/bench'\npassword=hunter2"

    def delete(_self: InTheCluster, _clients: Clients, _entry: Entry) -> None:
        raise RuntimeError(secret)

    monkeypatch.setattr(InTheCluster, "delete", delete)
    run.create(InTheCluster.kind, "role", lambda entry: Made(entry.name))
    [(_entry, reason)] = run.remove().remaining
    assert reason.startswith("RuntimeError: AWS IAM REVOKE app FROM")
    monkeypatch.setattr(InTheCluster, "find", delete)
    [doubt] = survey().doubts
    for said in (reason, doubt):
        assert "\n" not in said
        for part in ("111122223333", "arn:aws", "hunter2"):
            assert part not in said


@pytest.mark.parametrize(
    ("target", "runner", "hours"),
    [
        ({}, {}, 12),
        ({"life": "3", "peer": "us-east-2"}, {}, 3),
        ({"dsql.life": "3"}, {"life": "3", "type": "c7g.large"}, 3),
        ({}, {"life": "48"}, 48),
    ],
)
def test_a_run_has_one_life(target: dict[str, str], runner: dict[str, str], hours: int) -> None:
    assert life_of(target, runner) == timedelta(hours=hours)


def test_several_lives_are_refused() -> None:
    with pytest.raises(UsageError, match=r"one life, not --dsql-target-option dsql.life=2, --dsql-run"):
        life_of({"dsql.life": "2"}, {"life": "48"})
    with pytest.raises(UsageError, match=r"--dsql-runner-option life: whole hours from 1 to 72, not '73'"):
        life_of({}, {"life": "73"})
