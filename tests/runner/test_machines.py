"""What the machines are made of, where AWS refuses the second of the calls that make it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from moto import mock_aws

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import resource
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.runner import machines
from pytest_dsql.runner.ec2 import OWNER
from tests.aws.answers import answering, xml_answer
from tests.runner.conftest import Fast

REGION = "us-east-1"
STATEMENTS = [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]


def _profile(run: AwsRun) -> Entry:
    return machines.instance_profile(run, machines.role(run, STATEMENTS))


@pytest.mark.parametrize(
    ("make", "refused", "kind"),
    [
        (machines.bucket, "s3.PutBucketTagging", "s3-bucket"),
        (lambda run: machines.role(run, STATEMENTS), "iam.PutRolePolicy", "iam-role"),
        (lambda run: machines.role(run, STATEMENTS), "iam.AttachRolePolicy", "iam-role"),
        (_profile, "iam.AddRoleToInstanceProfile", "instance-profile"),
    ],
    ids=["bucket", "role", "policy", "profile"],
)
def test_what_was_made_is_removed_when_the_next_step_is_refused(
    aws_environment: dict[str, str], make: Callable[[AwsRun], Entry], refused: str, kind: str
) -> None:
    with mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        run = AwsRun.begin("run-1", OWNER, region=REGION)
        run.clock = Fast().clock()
        denial = xml_answer(403, "AccessDenied", "not today")
        with answering(refused, lambda: denial), pytest.raises(AwsError, match="is not allowed"):
            make(run)
        [entry] = [one for one in run.inventory.remaining if one.kind == kind]
        assert resource(kind).find(run.clients, entry) == entry.arn
        assert run.remove().remaining == []
        assert resource(kind).find(run.clients, entry) is None
        run.close()
