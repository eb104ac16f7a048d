"""A SIGKILL at every step of making and removing what the runners need leaves nothing that reap doesn't remove."""

from __future__ import annotations

import pytest

from pytest_dsql.aws.inventory import inventories
from pytest_dsql.aws.policies import actions
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.runner import machines
from pytest_dsql.runner.ec2 import OWNER
from pytest_dsql.runner.grants import EC2_ACTIONS, machine_statements
from pytest_dsql.runner.machines import remove_all
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.runner.store import Store
from tests.aws.killing import kills
from tests.runner.conftest import Fast, called, left

REGION = "us-east-1"
OPTIONS = Ec2Options.of({}, plan="quick")
STATEMENTS = machine_statements(
    bucket="bucket",
    endpoints=[Endpoint("abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws")],
    secret=None,
    account="123456789012",
    partition="aws",
)


def machines_come_and_go(group: str, places: list[machines.Place], image: str) -> None:
    run = AwsRun.begin("run-1", OWNER, region=REGION)
    run.clock = Fast(0.0).clock()
    store = Store(run.clients, REGION, machines.bucket(run).name)
    store.put("results/results.json", b"{}")
    profile = machines.instance_profile(run, machines.role(run, STATEMENTS))
    generators = machines.security_group(run, places[0].vpc)
    machines.let_in(run, group, generators, 5432)
    machines.instance(run, OPTIONS, number=1, tries=places, image=image, profile=profile, group=generators)
    remove_all(run)


def test_machines(server: str, clients_made_once: None) -> None:
    run = AwsRun.begin("other", OWNER, region=REGION)
    places, image = machines.places(run, OPTIONS, None), machines.image(run, OPTIONS)
    vpc = places[0].vpc
    database = run.clients.call(
        "ec2", REGION, "create_security_group", GroupName="database", Description="-", VpcId=vpc
    )["GroupId"]
    before = left(run)
    assert list(before) == ["groups"]
    run.inventory.close()
    seen = 0
    for when in kills(lambda: machines_come_and_go(database, places, image)):
        seen += 1
        removal = reap(clock=Fast(0.0).clock(), settling_s=0.0)
        assert removal.remaining == [], when
        assert left(run) == before, when
        [group] = run.clients.call("ec2", REGION, "describe_security_groups", GroupIds=[database])["SecurityGroups"]
        assert group["IpPermissions"] == [], when
        assert inventories() == [], when
    assert seen > 40


def test_what_is_left_is_found_by_its_tags_without_the_inventory(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds' `scan`, which `verify` asks. The policy allows all that is called on the way."""
    from pytest_dsql.aws.resources import resource

    asked = called(monkeypatch)
    run = AwsRun.begin("run-1", OWNER, region=REGION)
    run.clock = Fast().clock()
    places, image = machines.places(run, OPTIONS, None), machines.image(run, OPTIONS)
    machines.bucket(run)
    profile = machines.instance_profile(run, machines.role(run, STATEMENTS))
    group = machines.security_group(run, places[0].vpc)
    other = run.clients.call(
        "ec2", REGION, "create_security_group", GroupName="database", Description="-", VpcId=places[0].vpc
    )
    machines.let_in(run, other["GroupId"], group, 5432)
    machines.instance(run, OPTIONS, number=1, tries=places, image=image, profile=profile, group=group)
    for kind in ("s3-bucket", "iam-role", "instance-profile", "security-group", "security-group-rule", "ec2-instance"):
        [found] = resource(kind).scan(run.clients, REGION)
        assert found.run == "run-1", kind
        [known] = [one for one in run.inventory.remaining if one.kind == kind]
        assert (found.arn, found.name) == (known.arn, known.name), kind
        assert resource(kind).scan(run.clients, "eu-west-1") == [], kind
    remove_all(run)
    # Whom the credentials are, anybody may ask; the group is the test's own.
    assert asked - actions(EC2_ACTIONS) == {"sts:GetCallerIdentity"}


@pytest.mark.parametrize("tag", ["another-run", None])
def test_a_bucket_of_the_name_is_only_ours_with_our_tag_or_none(server: str, tag: str | None) -> None:
    from pytest_dsql.aws.resources import RUN_TAG, resource

    run = AwsRun.begin("run-1", OWNER, region=REGION)
    name = run.name("runner")
    run.clients.call("s3", REGION, "create_bucket", Bucket=name)
    if tag:
        tags = {"TagSet": [{"Key": RUN_TAG, "Value": tag}]}
        run.clients.call("s3", REGION, "put_bucket_tagging", Bucket=name, Tagging=tags)
    entry = run.inventory.intend("s3-bucket", REGION, name, owner=OWNER)
    assert resource("s3-bucket").find(run.clients, entry) == (None if tag else name)
