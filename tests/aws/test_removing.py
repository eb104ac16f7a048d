"""Removing what a run created, in an account of moto's: past failures, and only what is its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry, inventories
from pytest_dsql.aws.reaper import reap, remove
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.verifying import KEPT, LEFT, survey
from pytest_dsql.errors import ConnectionFailed
from tests.aws.clusters import REGION, Hours, cluster_call, clusters


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

    kind: Final = "tests.aws.test_removing:InTheCluster"
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
