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


#: Looking: none of these can be limited to resources, or the answer is needed before anything is ours.
LOOKING: Final = (
    Grant(
        (
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeInternetGateways",
            "ec2:DescribeRouteTables",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
            "rds:DescribeDBClusterParameterGroups",
            "rds:DescribeDBClusters",
            "rds:DescribeDBEngineVersions",
            "rds:DescribeDBInstances",
            "rds:DescribeDBParameterGroups",
            "rds:DescribeDBSubnetGroups",
            "rds:DescribeOrderableDBInstanceOptions",
            "rds:ListTagsForResource",
            "sts:GetCallerIdentity",
        )
    ),
)

#: The VPC and what is in it. EC2 asks for the permission on what is created and on what it is created in.
NETWORK: Final = (
    Grant(
        ("ec2:CreateVpc", "ec2:CreateSubnet", "ec2:CreateInternetGateway", "ec2:CreateSecurityGroup"),
        (
            "arn:*:ec2:*:*:vpc/*",
            "arn:*:ec2:*:*:subnet/*",
            "arn:*:ec2:*:*:internet-gateway/*",
            "arn:*:ec2:*:*:security-group/*",
        ),
        CREATING,
    ),
    # The VPC that a subnet or a security group is created in; it has our tag, or is one of yours.
    Grant(("ec2:CreateSubnet", "ec2:CreateSecurityGroup"), ("arn:*:ec2:*:*:vpc/*",)),
    Grant(
        ("ec2:CreateTags",),
        ("arn:*:ec2:*:*:*/*",),
        {
            "StringEquals": {
                "ec2:CreateAction": ["CreateVpc", "CreateSubnet", "CreateInternetGateway", "CreateSecurityGroup"]
            }
        },
    ),
    Grant(
        (
            "ec2:AttachInternetGateway",
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:DeleteInternetGateway",
            "ec2:DeleteSecurityGroup",
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
SECRET: Final = (
    Grant(
        ("secretsmanager:CreateSecret", "secretsmanager:GetSecretValue", "secretsmanager:TagResource"),
        ("arn:*:secretsmanager:*:*:secret:rds!*",),
    ),
    Grant(("kms:DescribeKey",)),
)

#: An account's first database has RDS make its service-linked role.
SERVICE_ROLE: Final = (
    Grant(
        ("iam:CreateServiceLinkedRole",),
        ("arn:*:iam::*:role/aws-service-role/rds.amazonaws.com/*",),
        {"StringLike": {"iam:AWSServiceName": "rds.amazonaws.com"}},
    ),
)

TOKENS: Final = (Grant(("rds-db:connect",), (f"arn:*:rds-db:*:*:dbuser:*/{IAM_ROLE}",)),)

_INSTANCE: Final = (
    Grant(
        ("rds:CreateDBInstance", "rds:AddTagsToResource"),
        (*_arns("db", "cluster"), "arn:*:rds:*:*:subgrp:*", "arn:*:rds:*:*:pg:*"),
    ),
    Grant(("rds:DeleteDBInstance", "rds:ModifyDBInstance"), _arns("db"), OURS),
    Grant(("rds:CreateDBSubnetGroup", "rds:AddTagsToResource"), _arns("subgrp")),
    Grant(("rds:DeleteDBSubnetGroup",), _arns("subgrp"), OURS),
)

#: `rds-multi-az`.
INSTANCE: Final = (
    *LOOKING,
    *NETWORK,
    *SECRET,
    *SERVICE_ROLE,
    *TOKENS,
    *_INSTANCE,
    Grant(("rds:CreateDBParameterGroup", "rds:AddTagsToResource"), _arns("pg")),
    Grant(("rds:ModifyDBParameterGroup", "rds:DeleteDBParameterGroup"), _arns("pg"), OURS),
)

#: `aurora-provisioned` and `aurora-serverless`.
CLUSTER: Final = (
    *LOOKING,
    *NETWORK,
    *SECRET,
    *SERVICE_ROLE,
    *TOKENS,
    *_INSTANCE,
    Grant(
        ("rds:CreateDBCluster", "rds:AddTagsToResource"),
        (*_arns("cluster"), "arn:*:rds:*:*:subgrp:*", "arn:*:rds:*:*:cluster-pg:*"),
    ),
    Grant(("rds:DeleteDBCluster", "rds:ModifyDBCluster"), _arns("cluster"), OURS),
    Grant(("rds:CreateDBClusterParameterGroup", "rds:AddTagsToResource"), _arns("cluster-pg")),
    Grant(("rds:ModifyDBClusterParameterGroup", "rds:DeleteDBClusterParameterGroup"), _arns("cluster-pg"), OURS),
)

#: What `rds-proxy` needs besides: proxies' ARNs hold an id instead of the name.
PROXY: Final = (
    Grant(
        (
            "rds:DescribeDBProxies",
            "rds:DescribeDBProxyTargetGroups",
            "rds:DescribeDBProxyTargets",
            "iam:ListRoles",
        )
    ),
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
