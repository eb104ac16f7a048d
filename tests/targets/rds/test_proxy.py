"""RDS Proxy before each of the databases: in a VPC of the user's, with a role that reads one secret, all removed."""

from __future__ import annotations

import json

import boto3
import psycopg
import pytest

from pytest_dsql.connect.endpoint import AMAZON_ROOT, IamAuth, PasswordAuth
from pytest_dsql.errors import DsqlError
from pytest_dsql.targets.rds.kinds import DATABASES
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents, ec2_of, rds_of
from tests.targets.rds.conftest import REGION, begin
from tests.targets.rds.interference import interfering, refusal
from tests.targets.rds.opening import opened

NAME = "pytest-dsql-20261130t100000z-abc123-rds-proxy"


@pytest.fixture
def subnets(account: None) -> str:
    """Two subnets of the VPC that the load generator is in."""
    ec2 = ec2_of(REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")
        for number, zone in enumerate("ab")
    ]
    return ",".join(one["Subnet"]["SubnetId"] for one in made)


@pytest.mark.parametrize("before", DATABASES)
def test_a_proxy_leads_to_each_database(before: str, subnets: str, databases: PlainPostgres) -> None:
    yours = contents()
    target = opened("rds-proxy", databases, subnets=subnets, before=before)
    with target.connect() as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("pytest_dsql",)
    assert (target.name, target.facts["before"], target.endpoint.sslmode) == ("rds-proxy", before, "verify-full")
    assert isinstance(target.endpoint.auth, PasswordAuth)
    [registered] = rds_of(REGION).describe_db_proxy_targets(DBProxyName=NAME)["Targets"]
    assert (registered["RdsResourceId"], registered["Type"]) == (
        NAME,
        "RDS_INSTANCE" if before == "rds-multi-az" else "TRACKED_CLUSTER",
    )
    assert begin("rds-proxy").remove().remaining == []
    assert contents() == yours


def test_the_proxy_is_as_the_options_say(subnets: str, databases: PlainPostgres) -> None:
    opened("rds-proxy", databases, subnets=subnets, proxy_percent="80", proxy_borrow="30")
    [proxy] = rds_of(REGION).describe_db_proxies()["DBProxies"]
    assert (proxy["EngineFamily"], proxy["RequireTLS"]) == ("POSTGRESQL", True)
    assert ",".join(proxy["VpcSubnetIds"]) == subnets
    assert proxy["VpcSecurityGroupIds"] == contents()["security groups"]
    assert proxy["Auth"][0]["IAMAuth"] == "DISABLED"
    [group] = rds_of(REGION).describe_db_proxy_target_groups(DBProxyName=NAME)["TargetGroups"]
    assert group["ConnectionPoolConfig"]["MaxConnectionsPercent"] == 80
    assert group["ConnectionPoolConfig"]["ConnectionBorrowTimeout"] == 30
    [instance] = rds_of(REGION).describe_db_instances()["DBInstances"]
    assert instance["PubliclyAccessible"] is False


def test_its_role_reads_the_databases_secret_and_nothing_else(subnets: str, databases: PlainPostgres) -> None:
    opened("rds-proxy", databases, subnets=subnets)
    client = boto3.client("iam", region_name=REGION)
    role = client.get_role(RoleName=NAME)["Role"]
    assert role["Path"] == "/pytest-dsql/"
    [trusted] = role["AssumeRolePolicyDocument"]["Statement"]
    assert (trusted["Principal"], trusted["Action"]) == ({"Service": "rds.amazonaws.com"}, "sts:AssumeRole")
    [name] = client.list_role_policies(RoleName=NAME)["PolicyNames"]
    document = client.get_role_policy(RoleName=NAME, PolicyName=name)["PolicyDocument"]
    [secret] = boto3.client("secretsmanager", region_name=REGION).list_secrets()["SecretList"]
    statements = (document if isinstance(document, dict) else json.loads(document))["Statement"]
    assert statements == [{"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret["ARN"]}]
    assert client.list_attached_role_policies(RoleName=NAME)["AttachedPolicies"] == []


def test_a_role_that_is_not_known_everywhere_yet_is_waited_for(subnets: str, databases: PlainPostgres) -> None:
    refused: list[str] = []

    def settle(_service: str, operation: str) -> object:
        if operation == "CreateDBProxy" and len(refused) < 3:
            refused.append(operation)
            return refusal("InvalidParameterValue", "RDS is not authorized to assume the role")
        return None

    with interfering(before=settle):
        opened("rds-proxy", databases, subnets=subnets)
    assert len(refused) == 3
    assert contents()["proxies"] == [NAME]


# moto's own: it names the error otherwise than the service's model.
@pytest.mark.filterwarnings("ignore:Exception.DBProxyQuotaExceededFault:UserWarning")
def test_a_quota_of_proxies_is_said(subnets: str, databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_RDS_PROXY_LIMIT", "0")
    yours = contents()
    with pytest.raises(DsqlError, match="rds:CreateDBProxy in us-east-1: a quota of the account is used up"):
        opened("rds-proxy", databases, subnets=subnets)
    assert begin("rds-proxy").remove().remaining == []
    assert contents() == yours


def test_a_target_that_it_cannot_use_is_said(subnets: str, databases: PlainPostgres) -> None:
    from types import SimpleNamespace

    health = {"State": "UNAVAILABLE", "Reason": "AUTH_FAILURE", "Description": "credentials"}

    def spoil(_service: str, operation: str) -> object:
        if operation != "DescribeDBProxyTargets":
            return None
        return SimpleNamespace(status_code=200), {"Targets": [{"TargetHealth": health}], "ResponseMetadata": {}}

    with interfering(before=spoil), pytest.raises(DsqlError, match="can't use its database: AUTH_FAILURE"):
        opened("rds-proxy", databases, subnets=subnets)


def test_tokens_are_for_the_proxy_and_its_certificate_is_amazons(
    subnets: str, databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing here checks tokens as a proxy does, or has Amazon's certificate: what is looked at is the endpoint."""
    monkeypatch.setattr("pytest_dsql.targets.rds.reaching.reached", lambda *_ignored: psycopg.connect(databases.dsn))
    target = opened("rds-proxy", databases, subnets=subnets, auth="iam", sslrootcert="")
    auth = target.endpoint.auth
    assert isinstance(auth, IamAuth)
    assert (auth.service, target.endpoint.user, target.endpoint.region) == ("rds-db", "pytest_dsql", REGION)
    assert target.endpoint.sslrootcert == str(AMAZON_ROOT)
    [proxy] = rds_of(REGION).describe_db_proxies()["DBProxies"]
    assert proxy["Auth"][0]["IAMAuth"] == "REQUIRED"
