"""What has our tag is found in an account by it alone: for `verify`, and for runs whose inventory is lost."""

from __future__ import annotations

from dataclasses import replace

import boto3
import pytest

from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import KINDS, resource
from pytest_dsql.aws.run import AwsRun
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents, ec2_of, rds_of
from tests.targets.rds.conftest import REGION, begin
from tests.targets.rds.opening import opened
from tests.targets.rds.test_grants import subnets_of_yours

OURS = [kind for kind in KINDS if kind.startswith(("db-", "vpc", "subnet", "internet", "security", "iam"))]


def scanned(run: AwsRun, region: str = REGION) -> list[Entry]:
    return [one for kind in OURS for one in resource(kind).scan(run.clients, region)]


@pytest.mark.usefixtures("account")
def test_everything_is_found_by_its_tags_and_removed(databases: PlainPostgres) -> None:
    opened("rds-multi-az", databases, parameters="random_page_cost:1.1")
    opened("rds-proxy", databases, subnets=subnets_of_yours(), before="aurora-serverless")
    run = begin("rds-multi-az")
    known = {(one.kind, one.arn, one.name) for one in run.inventory.remaining}
    found = scanned(run)
    assert {(one.kind, one.arn, one.name) for one in found} == known
    assert {one.run for one in found} == {run.inventory.run}
    assert all(one.details["expires"] for one in found)
    assert scanned(run, "eu-west-1") == []
    for entry in sorted(found, key=lambda one: -resource(one.kind).rank):
        knows = resource(entry.kind)
        assert knows.find(run.clients, entry) == entry.arn
        knows.delete(run.clients, entry)
        assert knows.gone(run.clients, entry)
        knows.delete(run.clients, entry)  # asking again is no error
    assert set(contents()) == {"vpcs", "subnets"}, "the user's own"


@pytest.mark.usefixtures("account")
def test_what_is_another_runs_is_not_found(databases: PlainPostgres) -> None:
    opened("rds-multi-az", databases, parameters="random_page_cost:1.1")
    run = begin("rds-multi-az")
    for entry in run.inventory.remaining:
        other = replace(entry, run="another-run", arn=None)
        assert resource(entry.kind).find(run.clients, other) is None


@pytest.mark.usefixtures("account", "offers")
def test_things_without_our_tag_are_nobodys() -> None:
    ec2, rds = ec2_of(REGION), rds_of(REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.create_security_group(GroupName="pytest-dsql-x", Description="x", VpcId=vpc)
    rds.create_db_parameter_group(
        DBParameterGroupName="pytest-dsql-x", DBParameterGroupFamily="postgres16", Description="x"
    )
    boto3.client("iam", region_name=REGION).create_role(
        RoleName="x", Path="/pytest-dsql/", AssumeRolePolicyDocument="{}"
    )
    assert scanned(begin("rds-multi-az")) == []
