"""What is in an account of moto's: asked of moto's own state, past all that is under test."""

from __future__ import annotations

from typing import Any

import boto3


def client(service: str, region: str) -> Any:
    return boto3.client(service, region_name=region)


def ec2_of(region: str) -> Any:
    return client("ec2", region)


def rds_of(region: str) -> Any:
    return client("rds", region)


def contents(region: str = "us-east-1") -> dict[str, list[str]]:
    """Return the names of everything that a target could have made, by kind; what an account is born with left out."""
    ec2, rds, iam = ec2_of(region), rds_of(region), client("iam", region)
    vpcs = [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"] if not one["IsDefault"]]
    found = {
        "vpcs": vpcs,
        "subnets": [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"] if one["VpcId"] in vpcs],
        "gateways": [one["InternetGatewayId"] for one in ec2.describe_internet_gateways()["InternetGateways"]],
        "security groups": [
            one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"] if one["GroupName"] != "default"
        ],
        "subnet groups": [one["DBSubnetGroupName"] for one in rds.describe_db_subnet_groups()["DBSubnetGroups"]],
        "parameter groups": [
            one["DBParameterGroupName"]
            for one in rds.describe_db_parameter_groups()["DBParameterGroups"]
            if not one["DBParameterGroupName"].startswith("default.")
        ],
        "cluster parameter groups": [
            one["DBClusterParameterGroupName"]
            for one in rds.describe_db_cluster_parameter_groups()["DBClusterParameterGroups"]
        ],
        "instances": [one["DBInstanceIdentifier"] for one in rds.describe_db_instances()["DBInstances"]],
        "clusters": [one["DBClusterIdentifier"] for one in rds.describe_db_clusters()["DBClusters"]],
        "proxies": [one["DBProxyName"] for one in rds.describe_db_proxies()["DBProxies"]],
        "roles": [one["RoleName"] for one in iam.list_roles()["Roles"]],
    }
    return {kind: sorted(names) for kind, names in found.items() if names}
