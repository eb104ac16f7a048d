"""What AWS refuses: one clear line, and nothing is left of what was made before it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.errors import DsqlError
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents, rds_of
from tests.targets.rds.conftest import REGION, begin
from tests.targets.rds.interference import Calls, changes, interfering, refusal
from tests.targets.rds.opening import opened

pytestmark = pytest.mark.usefixtures("account")

ARN = "arn:aws:rds:us-east-1:123456789012:db:pytest-dsql-x"


@pytest.mark.parametrize(
    ("target", "operation", "code", "said"),
    [
        ("rds-multi-az", "CreateVpc", "VpcLimitExceeded", "ec2:CreateVpc in us-east-1: a quota of the account is used"),
        ("rds-multi-az", "CreateDBInstance", "InstanceQuotaExceeded", "rds:CreateDBInstance in us-east-1: a quota"),
        ("rds-multi-az", "CreateDBInstance", "StorageQuotaExceeded", "rds:CreateDBInstance in us-east-1: a quota"),
        ("rds-multi-az", "CreateDBInstance", "InsufficientDBInstanceCapacity", "choose other zones (zones=A,B)"),
        ("rds-multi-az", "CreateDBInstance", "StorageTypeNotSupported", "choose another storage-type"),
        ("rds-multi-az", "CreateDBInstance", "ProvisionedIopsNotAvailableInAZFault", "choose other zones"),
        ("rds-multi-az", "CreateDBInstance", "InvalidParameterCombination", "choose another class, storage-type"),
        ("rds-multi-az", "CreateDBInstance", "AccessDenied", "rds:CreateDBInstance is not allowed in us-east-1"),
        ("aurora-provisioned", "CreateDBCluster", "DBClusterQuotaExceededFault", "rds:CreateDBCluster in us-east-1: a"),
        ("aurora-provisioned", "CreateDBSubnetGroup", "DBSubnetGroupQuotaExceeded", "a quota of the account"),
        (
            "aurora-serverless",
            "GetSecretValue",
            "AccessDeniedException",
            "secretsmanager:GetSecretValue is not allowed",
        ),
        (
            "aurora-serverless",
            "DescribeAvailabilityZones",
            "UnauthorizedOperation",
            "ec2:DescribeAvailabilityZones is not allowed",
        ),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    target: str, operation: str, code: str, said: str, databases: PlainPostgres
) -> None:
    def refuse(_service: str, called: str) -> Any:
        return refusal(code, f"Not for\n{ARN}.") if called == operation else None

    with interfering(before=refuse), pytest.raises(DsqlError) as refused:
        opened(target, databases)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "123456789012" not in str(refused.value)
    run = begin(target)
    assert run.remove().remaining == []
    assert contents() == {}


def test_a_name_that_is_taken_is_left_alone(databases: PlainPostgres) -> None:
    name = "pytest-dsql-20261130t100000z-abc123-rds-multi-az"
    rds_of(REGION).create_db_instance(
        DBInstanceIdentifier=name,
        DBInstanceClass="db.r6g.xlarge",
        Engine="postgres",
        MasterUsername="somebody",
        MasterUserPassword="somebody's",
        AllocatedStorage=20,
    )
    before = contents()
    with pytest.raises(AwsError, match="it isn't this run's, so it is left alone"):
        opened("rds-multi-az", databases)
    assert begin("rds-multi-az").remove().remaining == []
    assert contents() == before


def test_a_taken_clusters_name_is_left_alone(databases: PlainPostgres) -> None:
    """moto lets a second cluster take the place of the first; the service says DBClusterAlreadyExistsFault."""
    name = "pytest-dsql-20261130t100000z-abc123-aurora-provisioned"
    rds_of(REGION).create_db_cluster(
        DBClusterIdentifier=name, Engine="aurora-postgresql", MasterUsername="somebody", MasterUserPassword="somebody's"
    )

    def refuse(_service: str, called: str) -> Any:
        return refusal("DBClusterAlreadyExistsFault") if called == "CreateDBCluster" else None

    with interfering(before=refuse), pytest.raises(AwsError, match="it isn't this run's, so it is left alone"):
        opened("aurora-provisioned", databases)
    assert begin("aurora-provisioned").remove().remaining == []
    assert contents() == {"clusters": [name]}


@pytest.mark.parametrize("target", ["rds-multi-az", "aurora-serverless"])
def test_every_call_may_be_throttled_once(target: str, databases: PlainPostgres) -> None:
    throttled: set[str] = set()

    def throttle(service: str, operation: str) -> Any:
        if not changes(operation) or (seen := f"{service}:{operation}") in throttled:
            return None
        throttled.add(seen)
        return refusal("Throttling", "Rate exceeded", 400)

    with interfering(before=throttle):
        opened(target, databases)
        assert begin(target).remove().remaining == []
    assert len(throttled) > 15
    assert contents() == {}


def test_what_is_not_seen_yet_is_asked_again(databases: PlainPostgres) -> None:
    """A subnet of a VPC, an instance of a subnet group, that the next service doesn't know of yet."""
    refused: list[str] = []

    def settle(_service: str, operation: str) -> Any:
        codes = {
            "CreateSubnet": "InvalidVpcID.NotFound",
            "AttachInternetGateway": "InvalidInternetGatewayID.NotFound",
            "CreateDBSubnetGroup": "InvalidSubnet",
            "ModifyVpcAttribute": "InvalidVpcID.NotFound",
            "CreateDBInstance": "InvalidVPCNetworkStateFault",
            "AuthorizeSecurityGroupIngress": "InvalidGroup.NotFound",
        }
        if operation in codes and refused.count(operation) < 2:
            refused.append(operation)
            return refusal(codes[operation])
        return None

    calls = Calls()
    with interfering(before=settle, after=calls.after):
        opened("rds-multi-az", databases)
    assert len(refused) == 12
    assert {kind: len(names) for kind, names in contents().items()} == {
        "vpcs": 1,
        "subnets": 2,
        "gateways": 1,
        "security groups": 1,
        "subnet groups": 1,
        "instances": 1,
    }


@pytest.mark.parametrize("status", ["incompatible-network", "failed"])
def test_a_database_that_becomes_nothing_is_not_waited_for(status: str, databases: PlainPostgres) -> None:
    def spoil(_service: str, operation: str) -> Any:
        if operation == "DescribeDBInstances":
            from types import SimpleNamespace

            one = {"DBInstanceIdentifier": "x", "DBInstanceStatus": status}
            return SimpleNamespace(status_code=200), {"DBInstances": [one], "ResponseMetadata": {}}
        return None

    with interfering(before=spoil), pytest.raises(DsqlError, match=f"became {status}"):
        opened("rds-multi-az", databases)


def test_a_database_that_does_not_come_is_given_up(databases: PlainPostgres) -> None:
    def never(_service: str, operation: str) -> Any:
        if operation == "DescribeDBInstances":
            from types import SimpleNamespace

            one = {"DBInstanceIdentifier": "x", "DBInstanceStatus": "creating"}
            return SimpleNamespace(status_code=200), {"DBInstances": [one], "ResponseMetadata": {}}
        return None

    with interfering(before=never), pytest.raises(DsqlError, match="took longer than 3600 s"):
        opened("rds-multi-az", databases)
    assert begin("rds-multi-az").remove().remaining == []
    assert contents() == {}


def test_deletion_protection_that_somebody_switched_on_is_switched_off(databases: PlainPostgres) -> None:
    opened("aurora-provisioned", databases)
    [name] = contents()["clusters"]
    rds_of(REGION).modify_db_cluster(DBClusterIdentifier=name, DeletionProtection=True)
    assert begin("aurora-provisioned").remove().remaining == []
    assert contents() == {}
