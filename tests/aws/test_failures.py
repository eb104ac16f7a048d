"""Every error that a person can cause is one clear line, with what to do, and without ARNs and account ids."""

from __future__ import annotations

import pytest
from botocore.awsrequest import AWSResponse

from pytest_dsql.aws.failures import AwsError, Failure, failure_of
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.connect.credentials import forget_credentials
from pytest_dsql.errors import CredentialsError, DsqlError
from tests.aws.answers import answer, answering, xml_answer

REGION = "us-east-1"
DENIAL = (
    "User: arn:aws:sts::111122223333:assumed-role/ci/session is not authorized to perform: dsql:TagResource on "
    "resource: arn:aws:dsql:us-east-1:111122223333:cluster/* because no identity-based policy allows it"
)


def refused(response: AWSResponse) -> AwsError:
    with answering("dsql.CreateCluster", lambda: response), pytest.raises(AwsError) as caught:
        Clients().call("dsql", REGION, "create_cluster")
    text = str(caught.value)
    assert "\n" not in text
    assert "111122223333" not in text
    assert "arn:" not in text
    return caught.value


def test_a_missing_permission_is_named(account: None) -> None:
    error = refused(answer(403, "AccessDeniedException", DENIAL))
    assert error.failure is Failure.DENIED
    assert error.action == "dsql:TagResource", "the service's own word beats the name of the call"
    assert str(error) == (
        "dsql:TagResource is not allowed in us-east-1 (AccessDeniedException): add it to the policy of whoever runs "
        "this; `pytest-dsql policy TARGET` prints what a target needs"
    )


def test_a_quota_is_402(account: None) -> None:
    error = refused(answer(402, "ServiceQuotaExceededException", "You have reached the cluster limit."))
    assert error.failure is Failure.QUOTA
    assert "You have reached the cluster limit; remove" in str(error).replace("limit)", "limit")
    assert "pytest-dsql reap" in str(error)


def test_a_session_that_has_expired_says_how_to_sign_in(account: None) -> None:
    error = refused(answer(403, "ExpiredTokenException", "The security token included in the request is expired"))
    assert error.failure is Failure.CREDENTIALS
    assert "`aws sso login`" in str(error)


def test_throttling_is_tried_again_then_told(account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    slow = answering("dsql.CreateCluster", lambda: answer(429, "ThrottlingException", "slow down"))
    with slow as given, pytest.raises(AwsError) as caught:
        Clients().call("dsql", REGION, "create_cluster")
    assert len(given) == 4
    assert caught.value.failure is Failure.THROTTLED
    assert caught.value.passing


def test_no_credentials_at_all(aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_credentials()
    with pytest.raises(CredentialsError, match=r"no usable AWS credentials from the default chain: .*--dsql-profile"):
        Clients().call("sts", REGION, "get_caller_identity")


def test_an_unknown_profile(aws_environment: dict[str, str]) -> None:
    with pytest.raises(CredentialsError, match="profile 'nobody'"):
        Clients(profile="nobody").call("sts", REGION, "get_caller_identity")


def test_nothing_answers(aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(
        AwsError, match=r"dsql:ListClusters: nothing answers for dsql in us-east-1: .*--dsql-region"
    ) as caught:
        Clients().call("dsql", REGION, "list_clusters")
    assert caught.value.failure is Failure.UNREACHABLE


def test_a_wrong_value_is_refused_before_it_is_sent(account: None) -> None:
    with pytest.raises(AwsError, match="dsql:GetCluster in us-east-1 could not be asked"):
        Clients().call("dsql", REGION, "get_cluster", identifier=7)


def test_a_role_is_assumed(account: None) -> None:
    clients = Clients(role="arn:aws:iam::123456789012:role/bench")
    answer = clients.call("sts", REGION, "get_caller_identity")
    assert answer["Arn"] == "arn:aws:sts::123456789012:assumed-role/bench/pytest-dsql"
    assert "123456789012" not in repr(clients)


def test_a_role_that_may_not_be_assumed(account: None) -> None:
    denial = xml_answer(403, "AccessDenied", DENIAL.replace("dsql:TagResource", "sts:AssumeRole"))
    with answering("sts.AssumeRole", lambda: denial), pytest.raises(DsqlError) as caught:
        Clients(role="arn:aws:iam::123456789012:role/bench").call("dsql", REGION, "list_clusters")
    assert str(caught.value).startswith("sts:AssumeRole is not allowed in us-east-1 (AccessDenied)")
    assert "111122223333" not in str(caught.value)


def test_a_proxys_page_is_no_answer_of_aws(account: None) -> None:
    page = answer(200, "", "")
    page.raw = type(page.raw)(b"<html>Please log in to the network</html")
    with (
        answering("sts.GetCallerIdentity", lambda: page),
        pytest.raises(AwsError, match="none of AWS's: is there a proxy"),
    ):
        Clients().call("sts", REGION, "get_caller_identity")


@pytest.mark.parametrize(
    ("code", "status", "failure"),
    [
        ("DBInstanceAlreadyExists", 400, Failure.TAKEN),
        ("DBInstanceNotFound", 404, Failure.NOT_FOUND),
        ("DBClusterNotFoundFault", 404, Failure.NOT_FOUND),
        ("InvalidDBInstanceState", 400, Failure.CONFLICT),
        ("InvalidDBClusterStateFault", 400, Failure.CONFLICT),
        ("InsufficientDBInstanceCapacity", 400, Failure.CAPACITY),
        ("InsufficientInstanceCapacity", 500, Failure.CAPACITY),
        ("InstanceQuotaExceeded", 400, Failure.QUOTA),
        ("DBClusterQuotaExceededFault", 403, Failure.QUOTA),
        ("VpcLimitExceeded", 400, Failure.QUOTA),
        ("MaxSpotInstanceCountExceeded", 400, Failure.QUOTA),
        ("RequestLimitExceeded", 503, Failure.THROTTLED),
        ("InvalidVpcID.NotFound", 400, Failure.NOT_FOUND),
        ("InvalidGroup.Duplicate", 400, Failure.TAKEN),
        ("InvalidInstanceID.NotFound", 400, Failure.NOT_FOUND),
        ("DependencyViolation", 400, Failure.CONFLICT),
        ("ResourceNotFoundException", 404, Failure.NOT_FOUND),
        ("ResourceConflictException", 409, Failure.CONFLICT),
        ("UnauthorizedOperation", 403, Failure.DENIED),
        ("InternalServerException", 500, Failure.SERVICE),
        ("SomethingNew", 500, Failure.SERVICE),
        ("SomethingNew", 402, Failure.QUOTA),
        ("SomethingNew", 400, Failure.OTHER),
        ("InvalidParameterValue", 400, Failure.INVALID),
    ],
)
def test_codes_of_the_services_are_understood(code: str, status: int, failure: Failure) -> None:
    assert failure_of(code, status) is failure
