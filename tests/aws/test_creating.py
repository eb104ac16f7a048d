"""Creating in an account of moto's: idempotent, written down, and refused in one line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry, Inventory
from pytest_dsql.aws.run import AwsRun, life_of
from pytest_dsql.aws.waiting import WaitedInVain
from pytest_dsql.errors import UsageError
from tests.aws.answers import answer, answering
from tests.aws.clusters import REGION, Hours, cluster_call, clusters, refusing


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
