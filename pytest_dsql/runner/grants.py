"""What the runners ask of AWS: of who starts them (`pytest-dsql policy`), and of the machines they start.

Sources: Service Authorization Reference, pages of EC2, IAM, S3, Systems Manager, Lambda and Step Functions.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pytest_dsql.aws.policies import CREATING, OURS, Grant, policy
from pytest_dsql.connect.endpoint import Endpoint, IamAuth

_ROLES: Final = "arn:aws:iam::*:role/pytest-dsql/*"
_PROFILES: Final = "arn:aws:iam::*:instance-profile/pytest-dsql/*"
_BUCKETS: Final = "arn:aws:s3:::pytest-dsql-*"
_FUNCTIONS: Final = "arn:aws:lambda:*:*:function:pytest-dsql-*"
_MACHINES: Final = "arn:aws:states:*:*:stateMachine:pytest-dsql-*"
_EXECUTIONS: Final = "arn:aws:states:*:*:execution:pytest-dsql-*"


def _ec2(*kinds: str) -> tuple[str, ...]:
    return tuple(f"arn:*:ec2:*:*:{kind}/*" for kind in kinds)


#: Who runs `--dsql-runner ec2`.
EC2_ACTIONS: Final = (
    Grant(
        (
            "s3:CreateBucket",
            "s3:DeleteBucket",
            "s3:GetBucketTagging",
            "s3:ListBucket",
            "s3:ListBucketMultipartUploads",
            "s3:ListBucketVersions",
            "s3:PutBucketTagging",
        ),
        (_BUCKETS,),
    ),
    # DeleteObjects asks for both, the second one where it is given versions (S3 API reference).
    Grant(
        ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:GetObject", "s3:PutObject"),
        (f"{_BUCKETS}/*",),
    ),
    Grant(("s3:ListAllMyBuckets",)),
    Grant(("iam:CreateRole", "iam:TagRole"), (_ROLES,), CREATING),
    Grant(
        (
            "iam:DeleteRole",
            "iam:DeleteRolePolicy",
            "iam:DetachRolePolicy",
            "iam:GetRole",
            "iam:ListAttachedRolePolicies",
            "iam:ListRolePolicies",
            "iam:ListRoleTags",
            "iam:PutRolePolicy",
        ),
        (_ROLES,),
    ),
    Grant(
        ("iam:AttachRolePolicy",),
        (_ROLES,),
        {"ArnEquals": {"iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}},
    ),
    Grant(("iam:PassRole",), (_ROLES,), {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
    Grant(("iam:CreateInstanceProfile", "iam:TagInstanceProfile"), (_PROFILES,), CREATING),
    Grant(
        (
            "iam:AddRoleToInstanceProfile",
            "iam:DeleteInstanceProfile",
            "iam:GetInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile",
        ),
        (_PROFILES,),
    ),
    Grant(("iam:ListRoles", "iam:ListInstanceProfiles")),
    Grant(
        (
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeSecurityGroupRules",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
        ),
    ),
    # EC2 asks for the permission on all that an instance is started with: what comes into being has our tag, its group
    # is ours, its image Amazon's. The subnet may be one of yours, and a request for Spot has no tags.
    Grant(("ec2:RunInstances",), _ec2("instance", "volume", "network-interface"), CREATING),
    Grant(("ec2:RunInstances",), _ec2("security-group"), OURS),
    Grant(("ec2:RunInstances",), ("arn:*:ec2:*::image/*",), {"StringEquals": {"ec2:Owner": "amazon"}}),
    Grant(("ec2:RunInstances",), _ec2("subnet", "spot-instances-request")),
    Grant(("ec2:CreateSecurityGroup",), _ec2("security-group"), CREATING),
    Grant(("ec2:CreateSecurityGroup",), _ec2("vpc")),
    # Into a group that the target was created with; never into one of yours.
    Grant(("ec2:AuthorizeSecurityGroupIngress",), _ec2("security-group"), OURS),
    Grant(("ec2:AuthorizeSecurityGroupIngress",), _ec2("security-group-rule"), CREATING),
    Grant(
        ("ec2:CreateTags",),
        _ec2("instance", "volume", "network-interface", "security-group", "security-group-rule"),
        {
            "StringEquals": {
                "ec2:CreateAction": ["RunInstances", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress"]
            }
        },
    ),
    Grant(("ec2:TerminateInstances",), _ec2("instance"), OURS),
    Grant(("ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress"), _ec2("security-group"), OURS),
    # The account's first Spot instance makes the role of the Spot service.
    Grant(
        ("iam:CreateServiceLinkedRole",),
        ("arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*",),
        {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
    ),
    Grant(("ssm:GetParameter",), ("arn:aws:ssm:*::parameter/aws/service/ami-amazon-linux-latest/*",)),
    Grant(("ssm:SendCommand",), ("arn:aws:ssm:*::document/AWS-RunShellScript",)),
    Grant(
        ("ssm:SendCommand",), ("arn:aws:ec2:*:*:instance/*",), {"StringLike": {"ssm:resourceTag/pytest-dsql:run": "*"}}
    ),
    Grant(("ssm:CancelCommand", "ssm:DescribeInstanceInformation", "ssm:GetCommandInvocation")),
)

#: Who runs `--dsql-runner lambda`. The function itself may only log in to the target's clusters.
LAMBDA_ACTIONS: Final = (
    Grant(("iam:CreateRole", "iam:TagRole"), (_ROLES,), CREATING),
    Grant(
        (
            "iam:DeleteRole",
            "iam:DeleteRolePolicy",
            "iam:GetRole",
            "iam:ListAttachedRolePolicies",
            "iam:ListRolePolicies",
            "iam:ListRoleTags",
            "iam:PutRolePolicy",
        ),
        (_ROLES,),
    ),
    Grant(("iam:ListRoles",)),
    Grant(
        ("iam:PassRole",),
        (_ROLES,),
        {"StringEquals": {"iam:PassedToService": ["lambda.amazonaws.com", "states.amazonaws.com"]}},
    ),
    Grant(("lambda:CreateFunction", "lambda:TagResource"), (_FUNCTIONS,), CREATING),
    Grant(
        ("lambda:DeleteFunction", "lambda:GetFunction", "lambda:GetFunctionConfiguration", "lambda:ListTags"),
        (_FUNCTIONS,),
    ),
    Grant(("lambda:ListFunctions",)),
    Grant(("states:CreateStateMachine", "states:TagResource"), (_MACHINES,), CREATING),
    Grant(
        (
            "states:DeleteStateMachine",
            "states:DescribeStateMachine",
            "states:ListExecutions",
            "states:ListTagsForResource",
            "states:StartExecution",
        ),
        (_MACHINES,),
    ),
    Grant(("states:DescribeExecution", "states:StopExecution"), (_EXECUTIONS,)),
    Grant(("states:ListStateMachines",)),
    # What the budget's guard asks during the run, and the estimate before it.
    Grant(("cloudwatch:GetMetricData", "pricing:GetProducts")),
    # The database role is made, and removed, by admin.
    Grant(("dsql:DbConnectAdmin", "dsql:GetCluster"), ("arn:aws:dsql:*:*:cluster/*",)),
)


def machine_statements(
    *, bucket: str, endpoints: list[Endpoint], secret: str | None, account: str, partition: str
) -> list[dict[str, Any]]:
    """Return what an instance may do: use the run's bucket, log in to the target, look at what it costs; no more."""
    statements = [
        _allow(["s3:GetObject", "s3:PutObject"], [f"arn:{partition}:s3:::{bucket}/*"]),
        _allow(["s3:ListBucket"], [f"arn:{partition}:s3:::{bucket}"]),
        # What the budget's guard asks during the run; neither knows resources.
        _allow(["cloudwatch:GetMetricData", "pricing:GetProducts"], ["*"]),
        *login_statements(endpoints, account=account, partition=partition),
    ]
    if secret is not None:
        regions = sorted({str(one.region) for one in endpoints})
        arns = [f"arn:{partition}:secretsmanager:{region}:{account}:secret:{secret}-*" for region in regions]
        statements.append(_allow(["secretsmanager:GetSecretValue"], arns))
    return statements


def login_statements(endpoints: list[Endpoint], *, account: str, partition: str) -> list[dict[str, Any]]:
    """Return what it takes to log in to the endpoints with IAM tokens: to these, as this role, and nothing more."""
    actions: dict[str, list[str]] = {}
    for one in endpoints:
        if not isinstance(one.auth, IamAuth):
            continue
        if one.auth.service == "dsql":
            action = "dsql:DbConnectAdmin" if one.user == "admin" else "dsql:DbConnect"
            arn = f"arn:{partition}:dsql:{one.region}:{account}:cluster/{one.host.partition('.')[0]}"
        else:
            # The database's resource id is unknown to its endpoint; the role's name is the run's own.
            action, arn = "rds-db:connect", f"arn:{partition}:rds-db:{one.region}:{account}:dbuser:*/{one.user}"
        actions.setdefault(action, []).append(arn)
    return [_allow([action], sorted(set(arns))) for action, arns in sorted(actions.items())]


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def policy_of(runner: str) -> str:
    """Return the least policy of who starts a runner, `ec2` or `lambda`, as JSON."""
    return json.dumps(policy(EC2_ACTIONS if runner == "ec2" else LAMBDA_ACTIONS), indent=2)
