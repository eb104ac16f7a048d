"""Which tokens open a connection."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pytest_dsql.local.cluster import Principal
from pytest_dsql.local.gateway import token
from pytest_dsql.local.gateway.token import TokenRefused
from tests.local.gateway.harness import REGION, sign

HOST = "abcdefghijklmnopqrstuvwxyz.dsql.eu-central-1.on.aws"
PRINCIPAL = Principal("arn:aws:iam::000000000000:role/r", "AKIAABCDEFGHIJKLMNOP", "a/secret+key=")
TEMPORARY = Principal("arn:aws:iam::000000000000:role/t", "ASIAABCDEFGHIJKLMNOP", "other", "session//token+==")


def verify(password: str, **changes: Any) -> Principal:
    arguments: dict[str, Any] = {
        "user": "admin",
        "hosts": (HOST, "localhost"),
        "region": REGION,
        "principals": (PRINCIPAL, TEMPORARY),
        "now": time.time(),
    }
    return token.verify(token.read(password.encode()), **arguments | changes)


@pytest.mark.parametrize("principal", [PRINCIPAL, TEMPORARY])
@pytest.mark.parametrize("host", [HOST, HOST.upper(), "localhost", f"{HOST}:5432", f"{HOST}:443"])
def test_tokens_of_the_sdk_are_accepted(principal: Principal, host: str) -> None:
    assert verify(sign(principal, host, "DbConnectAdmin")) is principal


@pytest.mark.parametrize(
    ("user", "action", "accepted"),
    [
        ("admin", "DbConnectAdmin", True),
        ("admin", "DbConnect", False),
        ("app", "DbConnect", True),
        ("app", "DbConnectAdmin", False),
    ],
)
def test_the_action_must_fit_the_user(user: str, action: str, accepted: bool) -> None:
    password = sign(PRINCIPAL, HOST, action)
    if accepted:
        assert verify(password, user=user) is PRINCIPAL
    else:
        with pytest.raises(TokenRefused, match=f"Wrong user to action mapping. user: {user}, action: {action}"):
            verify(password, user=user)


@pytest.mark.parametrize(
    ("expires", "after_s", "accepted"), [(900, 890, True), (900, 905, False), (604_800, 604_700, True)]
)
def test_a_token_expires(expires: int, after_s: int, accepted: bool) -> None:
    password = sign(PRINCIPAL, HOST, "DbConnectAdmin", expires=expires)
    if accepted:
        verify(password, now=time.time() + after_s)
    else:
        with pytest.raises(TokenRefused, match="Signature expired: "):
            verify(password, now=time.time() + after_s)


def test_a_token_of_the_future_is_refused() -> None:
    with pytest.raises(TokenRefused, match="Signature not yet current: "):
        verify(sign(PRINCIPAL, HOST, "DbConnectAdmin"), now=time.time() - 600)


def test_a_life_over_a_week_is_refused() -> None:
    with pytest.raises(TokenRefused, match="must be less than a week"):
        verify(sign(PRINCIPAL, HOST, "DbConnectAdmin", expires=604_801))


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(TokenRefused, match="security token included in the request is invalid"):
        verify(sign(Principal("arn", "AKIAUNKNOWN", "secret"), HOST, "DbConnectAdmin"))


@pytest.mark.parametrize("session_token", [None, "another"])
def test_the_session_token_must_be_the_principals(session_token: str | None) -> None:
    stranger = Principal("arn", TEMPORARY.access_key_id, TEMPORARY.secret_access_key, session_token)
    with pytest.raises(TokenRefused, match="security token included in the request is invalid"):
        verify(sign(stranger, HOST, "DbConnectAdmin"))


def test_another_secret_is_refused() -> None:
    with pytest.raises(TokenRefused, match="does not match the signature"):
        verify(sign(Principal("arn", PRINCIPAL.access_key_id, "wrong"), HOST, "DbConnectAdmin"))


def test_another_host_is_refused() -> None:
    with pytest.raises(TokenRefused, match="does not match the signature"):
        verify(sign(PRINCIPAL, "other.example", "DbConnectAdmin"))


def test_another_region_is_refused() -> None:
    with pytest.raises(TokenRefused, match="scoped to a valid region, not 'us-east-1'"):
        verify(sign(PRINCIPAL, HOST, "DbConnectAdmin", region="us-east-1"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Action=DbConnectAdmin", "Action=DbConnect", "does not match"),
        ("X-Amz-Expires=900", "X-Amz-Expires=901", "does not match"),
        ("X-Amz-Expires=900", "X-Amz-Expires=-1", "should be a number"),
        ("X-Amz-Expires=900", "X-Amz-Expires=%D9%A1", "should be a number"),
        ("%2Fdsql%2F", "%2Frds-db%2F", "correct service: 'dsql'"),
        ("aws4_request", "aws4", "valid terminator"),
        ("%2Faws4_request", "", "exactly 5 slash-delimited elements"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1", "Unsupported AWS 'algorithm'"),
        ("SignedHeaders=host", "SignedHeaders=host%3Bx", "does not match"),
        ("X-Amz-Date=2", "X-Amz-Date=x", "ISO-8601"),
        ("X-Amz-Date=20", "X-Amz-Date=19", "Date in Credential scope does not match"),
        ("&X-Amz-Signature=", "&X-Amz-Signature=0", "does not match"),
        ("&X-Amz-Signature=", "&More=", "must include 'X-Amz-Signature'"),
        ("?Action", "?Action=DbConnect&Action", "does not match"),
        ("/?", "/path?", "does not match"),
    ],
)
def test_a_changed_token_is_refused(old: str, new: str, reason: str) -> None:
    password = sign(PRINCIPAL, HOST, "DbConnectAdmin")
    assert old in password
    with pytest.raises(TokenRefused, match=reason):
        verify(password.replace(old, new))


@pytest.mark.parametrize(
    "password", ["", "hunter2", "?", "/?&&=&%", "é", HOST, f"https://{HOST}/?Action=DbConnectAdmin"]
)
def test_what_is_no_token_is_refused(password: str) -> None:
    with pytest.raises(TokenRefused, match="must include 'X-Amz-"):
        verify(password)


def test_a_token_and_its_refusal_show_nothing_of_the_secret() -> None:
    password = sign(PRINCIPAL, HOST, "DbConnectAdmin")
    signature = password.rpartition("=")[2]
    assert signature not in repr(token.read(password.encode()))
    with pytest.raises(TokenRefused) as refused:
        verify(password, now=time.time() + 10_000)
    assert signature not in str(refused.value)
