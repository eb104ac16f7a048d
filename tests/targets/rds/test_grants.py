"""The policy of each target: exactly what it calls, and what AWS asks for besides."""

from __future__ import annotations

import pytest

from pytest_dsql.aws.failures import action_of
from pytest_dsql.aws.policies import actions, policy
from pytest_dsql.aws.resources import resource
from pytest_dsql.targets.created import module_of
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import ec2_of
from tests.targets.rds.conftest import REGION, begin
from tests.targets.rds.interference import interfering
from tests.targets.rds.opening import opened

#: Asked for without a call of that name. RDS makes the secret and its own role with the caller's permissions, what is
#: created with tags needs the permission to tag, and who hands a role to a service the one to pass it.
IMPLIED = {
    "ec2:CreateTags",
    "iam:CreateServiceLinkedRole",
    "kms:DescribeKey",
    "rds:AddTagsToResource",
    "rds-db:connect",
    "secretsmanager:CreateSecret",
    "secretsmanager:TagResource",
}
IMPLIED_OF_PROXY = {"iam:PassRole", "iam:TagRole"}
#: Asked for only when somebody has switched deletion protection on.
PROTECTED = {"rds:ModifyDBCluster", "rds:ModifyDBInstance"}
#: Asked for only when somebody has attached a policy to the role.
ATTACHED = {"iam:DetachRolePolicy"}


@pytest.mark.parametrize("target", ["rds-multi-az", "aurora-provisioned", "aurora-serverless", "rds-proxy"])
def test_the_policy_allows_what_is_called_and_no_more(
    target: str, account: None, databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A host in the VPC whose address nobody named.
    monkeypatch.setattr("pytest_dsql.targets.rds.whereabouts.local_address", lambda: "10.9.0.7")
    module = module_of(target)
    called: set[str] = set()

    def note(service: str, operation: str) -> None:
        called.add(action_of(service, operation))

    yours = subnets_of_yours()
    with interfering(after=note):
        for options in lives_of(target, yours):
            opened(target, databases, parameters="random_page_cost:1.1", **options)
            run = begin(target)
            for kind in kinds_of(target):
                resource(kind).scan(run.clients, REGION)
            assert run.remove().remaining == []

    allowed = actions(module.ACTIONS)
    assert called - allowed == set(), "called, and not allowed"
    implied = IMPLIED | (IMPLIED_OF_PROXY | ATTACHED if target == "rds-proxy" else set())
    assert allowed - called - implied - PROTECTED == set(), "allowed, and not called"
    assert policy(module.ACTIONS)["Version"] == "2012-10-17"


def lives_of(target: str, subnets: str) -> list[dict[str, str]]:
    """Return options with which everything that a target can do is done."""
    if target == "rds-proxy":
        return [
            {"subnets": subnets, "before": before, "generator": ""} for before in ("rds-multi-az", "aurora-provisioned")
        ]
    return [{}, {"subnets": subnets, "generator": ""}]


def kinds_of(target: str) -> set[str]:
    """Return the kinds that a target may create."""
    database = {"security-group", "db-subnet-group", "db-instance"}
    network = {"vpc", "subnet", "internet-gateway"}
    cluster = {"db-cluster", "db-cluster-parameter-group"}
    if target == "rds-proxy":
        return {*database, *cluster, "db-parameter-group", "db-proxy", "iam-role"}
    return {*database, *network, *({"db-parameter-group"} if target == "rds-multi-az" else cluster)}


def subnets_of_yours() -> str:
    """Make two subnets in a VPC."""
    ec2 = ec2_of(REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")
        for number, zone in enumerate("ab")
    ]
    return ",".join(one["Subnet"]["SubnetId"] for one in made)


@pytest.mark.parametrize("target", ["rds-multi-az", "aurora-provisioned", "rds-proxy"])
def test_what_removes_or_changes_is_bound_to_our_tag_or_our_names(target: str) -> None:
    for grant in module_of(target).ACTIONS:
        for action in grant.actions:
            operation = action.partition(":")[2]
            if operation.startswith(("Delete", "Detach", "Modify", "Put", "Attach", "Authorize", "Register")):
                ours = "aws:ResourceTag/pytest-dsql:run" in str(grant.when)
                named = all("pytest-dsql" in pattern or "target-group" in pattern for pattern in grant.resources)
                assert ours or named, action
