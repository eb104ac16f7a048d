"""The targets `dsql` and `dsql-multi-region` in an account of moto's, with what moto lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import botocore.client
import pytest
from moto.dsql.models import AuroraDSQLBackend, Cluster

from pytest_dsql.aws.failures import AwsError, Failure, action_of
from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.policies import actions
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import Clock
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.settings import Settings
from pytest_dsql.targets import attach, created, dsql, dsql_multi_region, preflight
from pytest_dsql.targets.target import Target
from tests.aws.answers import answer, answering
from tests.aws.dsql_service import faithful

REGIONS = ("us-east-1", "us-east-2")


def settings(target: str, *options: str, **others: object) -> Settings:
    return Settings.resolve(
        command_line={
            "target": target,
            "region": "us-east-1",
            "budget": "1",
            "target_option": list(options),
            **others,
        },
        environment={},
        ini={},
        check_set=lambda _settings: None,
    )


ONE = settings("dsql")
TWO = settings("dsql-multi-region", "peer=us-east-2", "witness=us-west-2")


@pytest.fixture(autouse=True)
def there(account: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account where DSQL does what it does, and nothing listens."""

    def unconnected(chosen: Settings, endpoints: dict[str, Endpoint], first: str) -> Target:
        return Target(
            name=chosen.target,
            endpoint=endpoints[first],
            tokens=TokenSource(endpoints[first]),
            facts={},
            regions=endpoints,
        )

    real = created.begin

    def begin(chosen: Settings, *, run_id: str, say: Callable[[str], None]) -> AwsRun:
        run = real(chosen, run_id=run_id, say=say)
        run.clock = Clock(sleep=lambda _seconds: time.sleep(0.01))
        return run

    monkeypatch.setattr(created, "begin", begin)
    monkeypatch.setattr(dsql, "connected", unconnected)
    with faithful():
        yield


def clusters() -> list[dict[str, Any]]:
    clients = Clients()
    return [
        clients.call("dsql", region, "get_cluster", identifier=one["identifier"])
        for region in REGIONS
        for one in clients.pages("dsql", region, "list_clusters", "clusters")
    ]


def test_a_cluster_is_unprotected_tagged_and_removed() -> None:
    target = created.open_created(ONE, run_id="run-1")
    (cluster,) = clusters()
    assert cluster["deletionProtectionEnabled"] is False
    assert cluster["tags"]["pytest-dsql:run"] == "run-1"
    assert {"pytest-dsql:created", "pytest-dsql:expires", "Name"} <= set(cluster["tags"])
    assert target.endpoint.host == f"{cluster['identifier']}.dsql.us-east-1.on.aws"
    assert target.endpoint.auth == IamAuth()
    assert target.facts["region"] == "us-east-1"
    assert target.facts["creation_s"] >= 0
    target.close()
    assert clusters() == []
    assert inventories() == []


def test_protection_that_somebody_switched_on_is_switched_off_again() -> None:
    target = created.open_created(ONE, run_id="run-1")
    (cluster,) = clusters()
    Clients().call(
        "dsql", "us-east-1", "update_cluster", identifier=cluster["identifier"], deletionProtectionEnabled=True
    )
    target.close()
    assert clusters() == []


@pytest.mark.parametrize("state", ["IDLE", "INACTIVE"])
def test_a_cluster_that_sleeps_is_usable(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cluster.__init__

    def asleep(self: Cluster, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        self._transitions = [("CREATING", state), ("DELETING", "DELETED")]

    monkeypatch.setattr(Cluster, "__init__", asleep)
    target = created.open_created(ONE, run_id="run-1")
    (cluster,) = clusters()
    assert cluster["status"] == state
    target.close()
    assert clusters() == []


def test_a_cluster_that_failed_half_way_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cluster.__init__

    def failed(self: Cluster, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        self.status = "FAILED"

    monkeypatch.setattr(Cluster, "__init__", failed)
    with pytest.raises(DsqlError, match="is FAILED: it will never take connections"):
        created.open_created(ONE, run_id="run-1")
    assert clusters() == []
    assert inventories() == []


def test_a_cluster_that_is_not_seen_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = AuroraDSQLBackend.get_cluster

    def get(self: AuroraDSQLBackend, identifier: str) -> Cluster:
        looks.append(identifier)
        if len(looks) <= 3:
            from moto.dsql.exceptions import ResourceNotFoundException

            raise ResourceNotFoundException("arn", identifier, "cluster")
        return real(self, identifier)

    monkeypatch.setattr(AuroraDSQLBackend, "get_cluster", get)
    target = created.open_created(ONE, run_id="run-1")
    assert len(looks) >= 4
    target.close()
    assert clusters() == []


@pytest.mark.parametrize(
    ("status", "code", "failure"),
    [
        (402, "ServiceQuotaExceededException", Failure.QUOTA),
        (403, "AccessDeniedException", Failure.DENIED),
        (400, "ValidationException", Failure.INVALID),
    ],
)
def test_a_refused_peer_takes_the_first_cluster_with_it(status: int, code: str, failure: Failure) -> None:
    calls = []

    def second() -> Any:
        calls.append(1)
        return answer(status, code, "no") if len(calls) == 2 else None

    with answering("dsql.CreateCluster", second) as given, pytest.raises(AwsError) as caught:
        created.open_created(TWO, run_id="run-1")
    assert given == [status]
    assert caught.value.failure is failure
    assert clusters() == []
    assert inventories() == []


def test_throttled_removal_is_waited_out() -> None:
    target = created.open_created(ONE, run_id="run-1")
    calls: list[int] = []

    def first_ones() -> Any:
        calls.append(1)
        return answer(429, "ThrottlingException", "slow down", **{"retry-after": "0"}) if len(calls) <= 6 else None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)
        with answering("dsql.DeleteCluster", first_ones) as given:
            target.close()
    assert given == [429] * 6, "botocore tries four times, and what removes tries again"
    assert clusters() == []


def test_what_could_not_be_removed_is_an_error_that_names_it() -> None:
    target = created.open_created(ONE, run_id="run-1")
    denial = answer(403, "AccessDeniedException", "arn:aws:iam::123456789012:user/me may not")
    with answering("dsql.DeleteCluster", lambda: denial), pytest.raises(DsqlError) as caught:
        target.close()
    assert "run run-1 left 1 behind" in str(caught.value)
    assert "dsql-cluster pytest-dsql-run-1-dsql in us-east-1: dsql:DeleteCluster is not allowed" in str(caught.value)
    assert "123456789012" not in str(caught.value)
    assert len(inventories()) == 1
    assert len(reap(settling_s=0.0).removed) == 1, "the permission was given meanwhile"
    assert clusters() == []
    assert inventories() == []


@pytest.mark.parametrize("moment", ["create_cluster", "wait_until_usable", "connected"])
def test_an_interrupt_while_it_is_being_created_removes_it(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(dsql, moment)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(dsql, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        created.open_created(ONE, run_id="run-1")
    assert clusters() == []
    assert inventories() == []


def test_two_regions_are_peered_and_have_an_endpoint_each() -> None:
    seen: list[str] = []
    real = AuroraDSQLBackend.update_cluster

    def update(self: AuroraDSQLBackend, **named: Any) -> Cluster:
        seen.append(str(self.clusters[named["identifier"]].status))
        return real(self, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AuroraDSQLBackend, "update_cluster", update)
        target = created.open_created(TWO, run_id="run-1")
    assert seen == ["PENDING_SETUP"], "the first waits to be told of its peer"
    first, second = clusters()
    assert [first["status"], second["status"]] == ["ACTIVE", "ACTIVE"]
    assert first["multiRegionProperties"] == {"witnessRegion": "us-west-2", "clusters": [second["arn"]]}
    assert second["multiRegionProperties"] == {"witnessRegion": "us-west-2", "clusters": [first["arn"]]}
    assert list(target.regions) == ["us-east-1", "us-east-2"]
    assert target.regions["us-east-2"].host.endswith(".dsql.us-east-2.on.aws")
    assert target.facts["regions"] == "us-east-1+us-east-2"
    assert target.facts["witness"] == "us-west-2"
    target.close()
    assert clusters() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "needs --dsql-target-option peer=REGION and --dsql-target-option witness=REGION"),
        (("peer=us-east-2",), "needs --dsql-target-option witness=REGION"),
        (("peer=us-east-1", "witness=us-west-2"), "three different Regions"),
        (("peer=us-east-2", "witness=us-east-1"), "three different Regions"),
        (("peer=eu-west-1", "witness=us-west-2"), "one group of Regions"),
        (("peer=Ohio", "witness=us-west-2"), "'Ohio' is not an AWS Region"),
        (("peer=us-east-2", "witness=us-west-2", "klass=x"), "klass: no such option"),
        (("peer=us-east-2", "witness=us-west-2", "port=x"), "port: a number"),
        (("peer=us-east-2", "witness=us-west-2", "life=99"), "life: whole hours from 1 to 72"),
        (("peer=us-east-2", "witness=us-west-2", "dsql.life=9"), "no target 'dsql' is created"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_created(options: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        preflight(settings("dsql-multi-region", *options), results=False)
    assert words in str(caught.value)
    assert inventories() == []


def test_options_may_be_for_one_of_several_targets() -> None:
    both = settings("dsql,dsql-multi-region", "peer=us-east-2", "witness=us-west-2", "dsql.port=7", "port=8")
    preflight(both, results=False)
    assert created.options_of(both.for_target("dsql")) == {"port": "7"}
    assert created.options_of(both.for_target("dsql-multi-region")) == {
        "peer": "us-east-2",
        "witness": "us-west-2",
        "port": "8",
    }


def test_nothing_is_attached_to_after_its_maximum_life(monkeypatch: pytest.MonkeyPatch) -> None:
    target = created.open_created(settings("dsql", keep="yes"), run_id="run-1")
    target.close()
    (cluster,) = clusters()
    attached = settings("attach", endpoint=cluster["arn"], budget=None)
    attach._refuse_expired(attach.endpoint_of(attached).host)  # not yet
    later = inventories()[0]
    later.write_text(later.read_text().replace('expires_at":"2', 'expires_at":"1'))
    with pytest.raises(UsageError, match=r"created by run run-1, and its maximum life ended at"):
        attach.attach(attached)


def test_a_target_does_no_new_work_after_its_maximum_life() -> None:
    target = created.open_created(settings("dsql", "life=1"), run_id="run-1")
    target.may_go_on()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pytest_dsql.aws.inventory.Inventory.expired", lambda self, now=None: True)
        with pytest.raises(DsqlError, match="maximum life"):
            target.check()
    target.close()
    assert clusters() == []


def test_clusters_are_attached_to_by_name_id_and_arn() -> None:
    name = "abcdefghijklmnopqrstuvwxyz"
    role = "arn:aws:iam::123456789012:role/bench"
    by_name = settings("attach", endpoint=f"{name}.dsql.us-east-1.on.aws", role=role, profile="p")
    by_id = settings("attach", endpoint=name, role=role, profile="p")
    by_arn = settings("attach", endpoint=f"arn:aws:dsql:us-east-1:123456789012:cluster/{name}", role=role, profile="p")
    endpoints = {attach.endpoint_of(one) for one in (by_name, by_id, by_arn)}
    assert len(endpoints) == 1
    (endpoint,) = endpoints
    assert endpoint.auth == IamAuth(profile="p", role=role)
    assert "123456789012" not in repr(endpoint) + repr(by_arn)
    with pytest.raises(UsageError, match="the ARN is of us-east-1, not of eu-west-1"):
        Endpoint.for_cluster(f"arn:aws:dsql:us-east-1:123456789012:cluster/{name}", region="eu-west-1")


def test_a_role_signs_the_tokens_and_its_end_is_known() -> None:
    from pytest_dsql.connect.credentials import forget_credentials, signing_keys

    forget_credentials()
    role = "arn:aws:iam::123456789012:role/bench"
    attached = settings("attach", endpoint="abcdefghijklmnopqrstuvwxyz", role=role, budget=None)
    endpoint = attach.endpoint_of(attached)
    assert isinstance(endpoint.auth, IamAuth)
    keys = signing_keys(endpoint.auth)
    assert keys.access_key.startswith("ASIA"), "temporary keys, not the user's own"
    assert keys.token is not None
    assert keys.expires_at is not None
    assert "X-Amz-Security-Token=" in TokenSource(endpoint).token()


@pytest.mark.parametrize(("chosen", "module"), [(ONE, dsql), (TWO, dsql_multi_region)], ids=["dsql", "multi-region"])
def test_the_policy_allows_what_is_called_and_no_more(
    chosen: Settings, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dsql.aws.verifying import reap_all

    called: set[str] = set()
    real = botocore.client.BaseClient._make_api_call

    def call(self: Any, operation: str, parameters: Any) -> Any:
        called.add(action_of(self.meta.service_model.signing_name, operation))
        if "tags" in parameters:
            called.add("dsql:TagResource")
        return real(self, operation, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)
    monkeypatch.setattr("pytest_dsql.aws.verifying.KINDS", {"dsql-cluster": ""})
    created.open_created(chosen, run_id="run-1").close()
    reap_all(settling_s=0.0)
    allowed = actions(module.ACTIONS)
    called.discard("sts:GetCallerIdentity")  # anybody may (STS API reference)
    assert called <= allowed
    # What moto doesn't ask for by a call of its own: connecting, peering's finer permissions, the first cluster's role.
    implied = {
        "dsql:DbConnectAdmin",
        "dsql:UpdateCluster",
        "iam:CreateServiceLinkedRole",
        "dsql:AddPeerCluster",
        "dsql:RemovePeerCluster",
        "dsql:PutMultiRegionProperties",
        "dsql:PutWitnessRegion",
    }
    assert allowed - called <= implied


def test_a_kind_that_is_not_listed_is_a_path() -> None:
    from pytest_dsql.aws.kinds.dsql_cluster import DsqlCluster
    from pytest_dsql.aws.resources import resource

    assert isinstance(resource("pytest_dsql.aws.kinds.dsql_cluster:DsqlCluster"), DsqlCluster)
    with pytest.raises(UsageError, match="no kind of resource is called 'nothing'"):
        resource("nothing")


def test_the_life_of_what_is_created_is_the_users() -> None:
    target = created.open_created(settings("dsql", "life=3"), run_id="run-1")
    from pytest_dsql.aws.inventory import Inventory

    inventory = Inventory.read(inventories()[0])
    assert inventory.expires_at - inventory.created_at == timedelta(hours=3)
    target.close()


def test_the_life_of_a_run_is_also_its_runners() -> None:
    """Whoever begins the inventory says how long all of the run lives: the runner's word counts from the start."""
    chosen = settings("dsql", runner="ec2", runner_option=["life=48"])
    target = created.open_created(chosen, run_id="run-1")
    from pytest_dsql.aws.inventory import Inventory

    inventory = Inventory.read(inventories()[0])
    assert inventory.expires_at - inventory.created_at == timedelta(hours=48)
    target.close()


def test_lives_that_differ_are_refused_before_anything_is_created() -> None:
    chosen = settings("dsql,dsql-multi-region", "life=3", "dsql.life=2", "peer=us-east-2", "witness=us-west-2")
    with pytest.raises(UsageError, match="one life"):
        preflight(chosen, results=False)
    assert inventories() == []


def test_the_guard_of_workers_keeps_the_target_and_nothing_else() -> None:
    chosen = settings("dsql", keep="yes")
    guard = created.Guard(chosen, "run-1", lambda _text: None)
    created.open_created(chosen, run_id="run-1").close()
    worker = created.begin(chosen, run_id="run-1", say=lambda _text: None)
    worker.owner = "runner-ec2"  # was killed, and left something behind
    worker.create("dsql-cluster", "left", lambda entry: dsql.create_cluster(worker, entry, worker.region))
    worker.close()
    assert len(clusters()) == 2
    assert guard.close() == 0
    assert len(clusters()) == 1
    reap(run="run-1")
    assert clusters() == []


@pytest.mark.parametrize("chosen", ["dsql", "dsql-multi-region"])
def test_a_region_in_which_nothing_answers_is_said_at_once(
    account: None, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the minutes for which a create call is tried again."""
    from pytest_dsql.targets.created import check_created

    monkeypatch.setenv("AWS_ENDPOINT_URL_DSQL", "http://127.0.0.1:1")
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    peers = {"peer": "us-esat-2", "witness": "us-west-2"} if chosen == "dsql-multi-region" else {}
    settings = Settings(target=chosen, targets=(chosen,), region="us-esat-1", budget=1.0, target_option=peers)
    with pytest.raises(AwsError, match=r"nothing answers for dsql in us-esat-1: see that the Region is right"):
        check_created(settings)
