"""What the targets on RDS and Aurora call: for `pytest-dsql policy`.

Sources: Service Authorization Reference, pages of RDS, EC2, Secrets Manager and IAM; RDS user guide, "Permissions
required for Secrets Manager integration" and "Creating and using an IAM policy for IAM database access".
"""

from __future__ import annotations

from typing import Final

from pytest_dsql.aws.kinds.iam_role import PATH
from pytest_dsql.aws.kinds.rds import PREFIX
from pytest_dsql.aws.policies import CREATING, OURS, Grant
from pytest_dsql.targets.rds.database import MASTER
from pytest_dsql.targets.rds.reaching import IAM_ROLE


def _arns(*kinds: str) -> tuple[str, ...]:
    return tuple(f"arn:*:rds:*:*:{kind}:{PREFIX}*" for kind in kinds)


def _looking(*actions: str) -> tuple[Grant, ...]:
    # Most of them can't be limited to resources, and the answers are needed before anything is ours.
    return (
        Grant(
            (
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
                "rds:DescribeDBEngineVersions",
                "rds:DescribeDBInstances",
                "rds:DescribeDBSubnetGroups",
                "rds:DescribeOrderableDBInstanceOptions",
                "rds:ListTagsForResource",
                "sts:GetCallerIdentity",
                *actions,
            )
        ),
    )


_GROUPS: Final = "arn:*:ec2:*:*:security-group/*"
_VPCS: Final = "arn:*:ec2:*:*:vpc/*"


def _tagging(*operations: str) -> Grant:
    return Grant(("ec2:CreateTags",), ("arn:*:ec2:*:*:*/*",), {"StringEquals": {"ec2:CreateAction": list(operations)}})


#: EC2 asks for the permission on what is created and on what it is created in: a VPC that has our tag, or one of yours.
_SECURITY_GROUP: Final = (
    Grant(("ec2:CreateSecurityGroup",), (_GROUPS,), CREATING),
    Grant(("ec2:CreateSecurityGroup",), (_VPCS,)),
    _tagging("CreateSecurityGroup"),
    Grant(("ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup"), (_GROUPS,), OURS),
)

#: A VPC and what is in it.
_VPC: Final = (
    Grant(("ec2:DescribeInternetGateways", "ec2:DescribeRouteTables")),
    Grant(
        ("ec2:CreateVpc", "ec2:CreateSubnet", "ec2:CreateInternetGateway"),
        (_VPCS, "arn:*:ec2:*:*:subnet/*", "arn:*:ec2:*:*:internet-gateway/*"),
        CREATING,
    ),
    Grant(("ec2:CreateSubnet",), (_VPCS,), OURS),
    _tagging("CreateVpc", "CreateSubnet", "CreateInternetGateway"),
    Grant(
        (
            "ec2:AttachInternetGateway",
            "ec2:DeleteInternetGateway",
            "ec2:DeleteSubnet",
            "ec2:DeleteVpc",
            "ec2:DetachInternetGateway",
            "ec2:ModifyVpcAttribute",
        ),
        ("*",),
        OURS,
    ),
    # The route table that a VPC is born with has no tags.
    Grant(("ec2:CreateRoute",), ("arn:*:ec2:*:*:route-table/*",)),
)

#: The password that RDS keeps. RDS makes the secret with the caller's permissions.
_SECRET: Final = (
    Grant(
        ("secretsmanager:CreateSecret", "secretsmanager:GetSecretValue", "secretsmanager:TagResource"),
        ("arn:*:secretsmanager:*:*:secret:rds!*",),
    ),
    Grant(("kms:DescribeKey",)),
)

#: An account's first database has RDS make its service-linked role.
_SERVICE_ROLE: Final = (
    Grant(
        ("iam:CreateServiceLinkedRole",),
        ("arn:*:iam::*:role/aws-service-role/rds.amazonaws.com/*",),
        {"StringLike": {"iam:AWSServiceName": "rds.amazonaws.com"}},
    ),
)

_TOKENS: Final = (Grant(("rds-db:connect",), (f"arn:*:rds-db:*:*:dbuser:*/{IAM_ROLE}",)),)

_INSTANCE: Final = (
    Grant(
        ("rds:CreateDBInstance", "rds:AddTagsToResource"),
        (*_arns("db", "cluster"), "arn:*:rds:*:*:subgrp:*", "arn:*:rds:*:*:pg:*"),
    ),
    Grant(("rds:DeleteDBInstance", "rds:ModifyDBInstance"), _arns("db"), OURS),
    Grant(("rds:CreateDBSubnetGroup", "rds:AddTagsToResource"), _arns("subgrp")),
    Grant(("rds:DeleteDBSubnetGroup",), _arns("subgrp"), OURS),
)

#: A Multi-AZ instance in a network that is there.
_DATABASE: Final = (
    *_looking("rds:DescribeDBParameterGroups"),
    *_SECURITY_GROUP,
    *_SECRET,
    *_SERVICE_ROLE,
    *_TOKENS,
    *_INSTANCE,
    Grant(("rds:CreateDBParameterGroup", "rds:AddTagsToResource"), _arns("pg")),
    Grant(("rds:ModifyDBParameterGroup", "rds:DeleteDBParameterGroup"), _arns("pg"), OURS),
)

#: An Aurora cluster in a network that is there.
_AURORA: Final = (
    *_looking("rds:DescribeDBClusters", "rds:DescribeDBClusterParameterGroups"),
    *_SECURITY_GROUP,
    *_SECRET,
    *_SERVICE_ROLE,
    *_TOKENS,
    *_INSTANCE,
    Grant(
        ("rds:CreateDBCluster", "rds:AddTagsToResource"),
        (*_arns("cluster"), "arn:*:rds:*:*:subgrp:*", "arn:*:rds:*:*:cluster-pg:*"),
    ),
    Grant(("rds:DeleteDBCluster", "rds:ModifyDBCluster"), _arns("cluster"), OURS),
    Grant(("rds:CreateDBClusterParameterGroup", "rds:AddTagsToResource"), _arns("cluster-pg")),
    Grant(("rds:ModifyDBClusterParameterGroup", "rds:DeleteDBClusterParameterGroup"), _arns("cluster-pg"), OURS),
)

#: `rds-multi-az`.
INSTANCE: Final = (*_DATABASE, *_VPC)

#: `aurora-provisioned` and `aurora-serverless`.
CLUSTER: Final = (*_AURORA, *_VPC)

#: `rds-proxy`, before any of them in a network of yours. Proxies' ARNs hold an id instead of the name.
PROXY: Final = (
    *_DATABASE,
    *_AURORA,
    Grant(("rds:DescribeDBProxies", "rds:DescribeDBProxyTargets", "iam:ListRoles")),
    Grant(("rds:CreateDBProxy", "rds:AddTagsToResource"), ("arn:*:rds:*:*:db-proxy:*",), CREATING),
    Grant(("rds:DeleteDBProxy",), ("arn:*:rds:*:*:db-proxy:*",), OURS),
    # A target group's ARN holds an id, too, and it has no tags.
    Grant(
        ("rds:ModifyDBProxyTargetGroup", "rds:RegisterDBProxyTargets"),
        ("arn:*:rds:*:*:target-group:*", *_arns("db", "cluster")),
    ),
    Grant(
        (
            "iam:CreateRole",
            "iam:DeleteRole",
            "iam:DeleteRolePolicy",
            "iam:DetachRolePolicy",
            "iam:GetRole",
            "iam:ListAttachedRolePolicies",
            "iam:ListRolePolicies",
            "iam:ListRoleTags",
            "iam:PutRolePolicy",
            "iam:TagRole",
        ),
        (f"arn:*:iam::*:role{PATH}*",),
    ),
    Grant(
        ("iam:PassRole",),
        (f"arn:*:iam::*:role{PATH}*",),
        {"StringEquals": {"iam:PassedToService": "rds.amazonaws.com"}},
    ),
    Grant(("rds-db:connect",), (f"arn:*:rds-db:*:*:dbuser:prx-*/{MASTER}",)),
)
