"""Each of the databases: made as the options say, reached with TLS and the password that RDS keeps, and removed."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.targets.rds.kinds import DATABASES
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents, ec2_of, rds_of
from tests.targets.rds.conftest import REGION, begin
from tests.targets.rds.opening import opened

NAME = "pytest-dsql-20261130t100000z-abc123"

pytestmark = pytest.mark.usefixtures("account")


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_is_made_reached_and_removed(name: str, databases: PlainPostgres) -> None:
    target = opened(name, databases)
    with target.connect() as connection:
        row = connection.execute("SELECT current_user, current_database()").fetchone()
        assert row == ("pytest_dsql", "pytest_dsql")
        connection.execute("CREATE SCHEMA its_own")
        connection.execute("DROP SCHEMA its_own")
    assert target.endpoint.sslmode == "verify-full"
    assert target.dialect == "postgresql"
    assert target.facts["engine_version"] == "16.10"
    assert all(isinstance(fact, str | int | float) for fact in target.facts.values()), "what the results file takes"
    removal = begin(name).remove()
    assert removal.remaining == []
    assert contents() == {}
    assert boto3.client("secretsmanager", region_name=REGION).list_secrets()["SecretList"] == []


def test_rds_multi_az_is_the_published_one(databases: PlainPostgres) -> None:
    target = opened("rds-multi-az", databases)
    [instance] = rds_of(REGION).describe_db_instances()["DBInstances"]
    assert wanted(instance) == {
        "DBInstanceIdentifier": f"{NAME}-rds-multi-az",
        "DBInstanceClass": "db.r6g.xlarge",
        "Engine": "postgres",
        "EngineVersion": "16.10",
        "AllocatedStorage": 400,
        "StorageType": "gp3",
        "MultiAZ": True,
        "PubliclyAccessible": True,
        "StorageEncrypted": True,
        "DeletionProtection": False,
        "AutoMinorVersionUpgrade": False,
        "CACertificateIdentifier": "rds-ca-rsa2048-g1",
        "IAMDatabaseAuthenticationEnabled": False,
        "DBSubnetGroup": f"{NAME}-rds-multi-az",
    }
    assert target.facts["instance_class"] == "db.r6g.xlarge"
    assert target.facts["storage"] == "400 GiB gp3"


def wanted(instance: dict[str, Any]) -> dict[str, Any]:
    keys = (
        "DBInstanceIdentifier",
        "DBInstanceClass",
        "Engine",
        "EngineVersion",
        "AllocatedStorage",
        "StorageType",
        "MultiAZ",
        "PubliclyAccessible",
        "StorageEncrypted",
        "DeletionProtection",
        "AutoMinorVersionUpgrade",
        "CACertificateIdentifier",
        "IAMDatabaseAuthenticationEnabled",
    )
    return {key: instance[key] for key in keys} | {"DBSubnetGroup": instance["DBSubnetGroup"]["DBSubnetGroupName"]}


def test_storage_and_its_speed_are_options(databases: PlainPostgres) -> None:
    opened("rds-multi-az", databases, storage_type="io1", storage="100", iops="3000", zones="us-east-1c,us-east-1b")
    [instance] = rds_of(REGION).describe_db_instances()["DBInstances"]
    assert (instance["StorageType"], instance["AllocatedStorage"], instance["Iops"]) == ("io1", 100, 3000)
    [group] = rds_of(REGION).describe_db_subnet_groups()["DBSubnetGroups"]
    assert {one["SubnetAvailabilityZone"]["Name"] for one in group["Subnets"]} == {"us-east-1b", "us-east-1c"}


def test_aurora_has_a_writer_and_a_reader_in_another_zone(
    databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # moto knows none of Aurora's storage types: API reference, CreateDBCluster, StorageType.
    monkeypatch.setattr("moto.rds.models.DBCluster.default_allocated_storage", staticmethod(lambda **_ignored: 1))
    target = opened("aurora-provisioned", databases, cluster_storage="aurora-iopt1")
    [cluster] = rds_of(REGION).describe_db_clusters()["DBClusters"]
    assert (cluster["Engine"], cluster["EngineVersion"], cluster["StorageType"]) == (
        "aurora-postgresql",
        "16.10",
        "aurora-iopt1",
    )
    assert cluster["StorageEncrypted"]
    instances = rds_of(REGION).describe_db_instances()["DBInstances"]
    assert [(one["DBInstanceClass"], one["AvailabilityZone"]) for one in instances] == [
        ("db.r6g.xlarge", "us-east-1a"),
        ("db.r6g.xlarge", "us-east-1b"),
    ]
    assert target.facts["zones"] == "us-east-1a+us-east-1b"
    assert target.facts["instances"] == 2


def test_serverless_scales_between_its_acu(databases: PlainPostgres) -> None:
    target = opened("aurora-serverless", databases, max_acu="16.5")
    [cluster] = rds_of(REGION).describe_db_clusters()["DBClusters"]
    assert cluster["ServerlessV2ScalingConfiguration"] == {"MinCapacity": 4.0, "MaxCapacity": 16.5}
    instances = rds_of(REGION).describe_db_instances()["DBInstances"]
    assert {one["DBInstanceClass"] for one in instances} == {"db.serverless"}
    assert target.facts["acu"] == "4-16.5"


@pytest.mark.parametrize("name", ["rds-multi-az", "aurora-provisioned"])
def test_settings_of_postgresql_go_into_a_group(name: str, databases: PlainPostgres) -> None:
    opened(name, databases, parameters="random_page_cost:1.1,rds.force_ssl:1")
    group = f"{NAME}-{name}"
    rds = rds_of(REGION)
    if name == "rds-multi-az":
        [instance] = rds.describe_db_instances()["DBInstances"]
        assert instance["DBParameterGroups"][0]["DBParameterGroupName"] == group
        parameters = rds.describe_db_parameters(DBParameterGroupName=group)["Parameters"]
    else:
        [cluster] = rds.describe_db_clusters()["DBClusters"]
        assert cluster["DBClusterParameterGroup"] == group
        parameters = rds.describe_db_cluster_parameters(DBClusterParameterGroupName=group)["Parameters"]
    assert {one["ParameterName"]: one["ParameterValue"] for one in parameters} == {
        "random_page_cost": "1.1",
        "rds.force_ssl": "1",
    }
    assert begin(name).remove().remaining == []
    assert contents() == {}


def test_everything_carries_the_tags_of_the_run(databases: PlainPostgres) -> None:
    opened("aurora-provisioned", databases, parameters="random_page_cost:1.1")
    ec2, rds = ec2_of(REGION), rds_of(REGION)
    made = contents()
    tagged = [
        *(one["Tags"] for one in ec2.describe_vpcs(VpcIds=made["vpcs"])["Vpcs"]),
        *(one["Tags"] for one in ec2.describe_subnets(SubnetIds=made["subnets"])["Subnets"]),
        *(one["Tags"] for one in ec2.describe_internet_gateways()["InternetGateways"]),
        *(one["Tags"] for one in ec2.describe_security_groups(GroupIds=made["security groups"])["SecurityGroups"]),
        *(one["TagList"] for one in rds.describe_db_instances()["DBInstances"]),
        *(one["TagList"] for one in rds.describe_db_clusters()["DBClusters"]),
        *(
            rds.list_tags_for_resource(ResourceName=arn)["TagList"]
            for arn in (
                rds.describe_db_subnet_groups()["DBSubnetGroups"][0]["DBSubnetGroupArn"],
                rds.describe_db_cluster_parameter_groups()["DBClusterParameterGroups"][0]["DBClusterParameterGroupArn"],
            )
        ),
    ]
    assert len(tagged) == sum(len(names) for names in made.values()) == 10
    for tags in tagged:
        names = {one["Key"] for one in tags}
        assert {"pytest-dsql:run", "pytest-dsql:created", "pytest-dsql:expires"} <= names


def test_another_process_of_the_run_joins(databases: PlainPostgres) -> None:
    first = opened("aurora-provisioned", databases)
    before = contents()
    second = opened("aurora-provisioned", databases)
    assert contents() == before
    assert second.endpoint == first.endpoint


def test_a_tunnel_keeps_the_name_that_the_certificate_is_for(databases: PlainPostgres) -> None:
    target = opened("rds-multi-az", databases, hostaddr="127.0.0.1", port=str(databases.port))
    assert target.endpoint.host == "localhost"
    assert target.endpoint.hostaddr == "127.0.0.1"
    dial(target.endpoint, TokenSource(target.endpoint))[0].close()


def test_the_password_is_shown_nowhere(databases: PlainPostgres) -> None:
    target = opened("rds-multi-az", databases)
    run = begin("rds-multi-az")
    shown = f"{target!r} {target.endpoint!r} {target.facts} {run.inventory.path.read_text()}"
    assert "P@55w0rd" not in shown
