"""Nothing secret survives masking, and ordinary text does."""

from __future__ import annotations

import html
import json
import os
import reprlib
import shlex
import textwrap
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from pytest_dsql.masking import mask

HOST = "abcdefghijklmnopqrstuvwxyz.dsql.eu-central-1.on.aws"
ACCOUNT = "123456789012"
SIGNATURE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def token(
    *, host: str = HOST, signature: str = SIGNATURE, session: str | None = None, action: str = "DbConnectAdmin"
) -> str:
    parts = [
        f"Action={action}",
        "X-Amz-Algorithm=AWS4-HMAC-SHA256",
        "X-Amz-Credential=ASIAQWERTYUIOPASDFGH%2F20261130%2Feu-central-1%2Fdsql%2Faws4_request",
        "X-Amz-Date=20261130T092723Z",
        "X-Amz-Expires=900",
        "X-Amz-SignedHeaders=host",
    ]
    if session is not None:
        parts.append("X-Amz-Security-Token=" + urllib.parse.quote(session, safe=""))
    parts.append(f"X-Amz-Signature={signature}")
    return f"{host}/?" + "&".join(parts)


CONTEXTS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "sentence": lambda secret: f"could not connect with {secret}, giving up (again).",
    "parenthesis": lambda secret: f"the token ({secret}) was refused",
    "repr": repr,
    "repr of bytes": lambda secret: repr(secret.encode()),
    "repr in a tuple": lambda secret: repr(("admin", secret, 5432)),
    "json": lambda secret: json.dumps({"password": secret, "user": "admin"}),
    "json of json": lambda secret: json.dumps(json.dumps({"password": secret, "n": 1})),
    "json escaped": lambda secret: json.dumps({"t": secret}).replace("&", "\\u0026").replace("/", "\\/"),
    "html": lambda secret: f"<td>{html.escape(secret)}</td>",
    "conninfo": lambda secret: make_conninfo(host=HOST, password=secret, dbname="postgres"),
    "keyword": lambda secret: f"connect(host='h', password={secret!r}, user='admin')",
    "uri": lambda secret: f"postgresql://admin:{urllib.parse.quote(secret, safe='')}@{HOST}:5432/postgres",
    "uri, not encoded": lambda secret: f"postgresql://admin:{secret}@{HOST}:5432/postgres",
    "uri query": lambda secret: f"postgresql://{HOST}/postgres?password={urllib.parse.quote(secret, safe='')}&user=a",
    "percent-encoded": lambda secret: f"body={urllib.parse.quote(secret, safe='')}",
    "percent-encoded twice": lambda secret: urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""),
    "environment": lambda secret: f"PGUSER=admin\nPGPASSWORD={secret}\nPGSSLMODE=verify-full\n",
    "environment's repr": lambda secret: repr({"PGPASSWORD": secret, "PGUSER": "admin"}),
    "export": lambda secret: f"export PGPASSWORD={shlex.quote(secret)} PGUSER=admin",
    "markdown": lambda secret: f"`{secret}`",
    "traceback": lambda secret: f'  File "x.py", line 3\n    connect("{secret}")\nOperationalError: {secret}\n',
    "indented": lambda secret: textwrap.indent(f"token:\n{secret}", "    "),
}


@pytest.mark.parametrize("context", CONTEXTS)
@settings(max_examples=30)
@given(
    signature=st.text("0123456789abcdef", min_size=64, max_size=64),
    session=st.none() | st.text("ABCXYZabcxyz0189+/=", min_size=20, max_size=200),
    action=st.sampled_from(["DbConnect", "DbConnectAdmin", "connect&DBUser=app"]),  # the last one: RDS's
)
def test_no_part_of_a_token_survives(context: str, signature: str, session: str | None, action: str) -> None:
    masked = mask(CONTEXTS[context](token(signature=signature, session=session, action=action)))
    assert signature not in masked
    assert "ASIAQWERTYUIOPASDFGH" not in masked
    if session is not None:
        for written in (session, urllib.parse.quote(session, safe=""), urllib.parse.quote(session)):
            assert written not in masked


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_a_token_that_lost_its_beginning_keeps_no_signature(cut: int) -> None:
    assert SIGNATURE not in mask(f"...{token()[cut:]}")


def test_an_abbreviated_token_keeps_no_signature() -> None:
    short = reprlib.Repr()
    short.maxstring = 150
    assert SIGNATURE[-20:] not in mask(short.repr(token()))


PASSWORD_CONTEXTS: dict[str, Callable[[str], str]] = {
    "conninfo": lambda secret: make_conninfo(host="h", password=secret, dbname="d"),
    "conninfo, PGPASSWORD first": lambda secret: f"PGPASSWORD={shlex.quote(secret)} psql -h h",
    "keyword": lambda secret: f"connect(password={secret!r}, user='u')",
    "json": lambda secret: json.dumps({"password": secret, "user": "u"}),
    "repr of a dictionary": lambda secret: repr({"password": secret}),
    "uri": lambda secret: f"postgresql://u:{urllib.parse.quote(secret, safe='')}@h/d and more",
    "sql": lambda secret: "ALTER ROLE u PASSWORD '" + secret.replace("\\", "\\\\").replace("'", "\\'") + "'",
    "secret key": lambda secret: f"secret_access_key={secret!r}",
    "secret key, ini": lambda secret: f"[default]\naws_secret_access_key = {''.join(secret.split())}\nregion = x\n",
    "secret key, json": lambda secret: json.dumps({"Credentials": {"SecretAccessKey": secret, "Version": 1}}),
    "session token, json": lambda secret: json.dumps({"SessionToken": secret}),
    "session token, environment": lambda secret: f"AWS_SESSION_TOKEN={shlex.quote(secret)}\nAWS_REGION=x",
    "passwd": lambda secret: f"passwd: {secret!r}",
}


@pytest.mark.parametrize("context", PASSWORD_CONTEXTS)
@settings(max_examples=50)
@given(middle=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20))
def test_no_password_survives(context: str, middle: str) -> None:
    secret = "kQ7" + middle + "zW9"
    masked = mask(PASSWORD_CONTEXTS[context](secret))
    assert "kQ7" not in masked
    assert "zW9" not in masked


@pytest.mark.parametrize(
    "context", ["conninfo", "keyword", "json", "repr of a dictionary", "secret key, json", "session token, json"]
)
def test_a_password_with_spaces_goes_whole(context: str) -> None:
    masked = mask(PASSWORD_CONTEXTS[context]("correct horse\nbattery"))
    assert "horse" not in masked
    assert "battery" not in masked


def test_a_quoted_password_whose_end_was_cut_off_goes_whole() -> None:
    assert "battery" not in mask("password='correct horse battery")


def test_a_uri_keeps_all_but_its_password() -> None:
    assert mask("postgresql://u:p%40ss@h:5432/d") == "postgresql://u:<masked>@h:5432/d"


def test_a_password_with_an_unencoded_at_sign_goes_whole() -> None:
    assert mask("postgresql://u:p@ss@h:5432/d") == "postgresql://u:<masked>@h:5432/d"


def test_a_secret_key_goes_where_nothing_names_it() -> None:
    assert "wJalr" not in mask("('AKIAIOSFODNN7EXAMPLE', 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY')")


def test_a_session_token_goes_where_nothing_names_it() -> None:
    assert "IQoJ" not in mask("got IQoJb3JpZ2luX2VjEJr//////////wEaDGV1LWNlbnRyYWwtMSJHMEUCIQD+x/y= back")


def test_an_access_key_id_keeps_enough_to_recognise_it() -> None:
    assert mask("key AKIAIOSFODNN7EXAMPLE was refused") == "key AKIAIOSF<masked> was refused"


ACCOUNT_TEXTS = [
    f"User: arn:aws:sts::{ACCOUNT}:assumed-role/bench/x is not authorized to perform: dsql:DbConnectAdmin",
    f"on resource: arn:aws-us-gov:dsql:us-gov-west-1:{ACCOUNT}:cluster/{HOST[:26]}",
    f"arn%3Aaws%3Aiam%3A%3A{ACCOUNT}%3Arole%2Fbench",
    f"AWS IAM GRANT app TO 'arn:aws:iam::{ACCOUNT}:role/app'",
    f"account {ACCOUNT}",
    f"Account: {ACCOUNT}",
    f'{{"UserId": "AIDA", "Account": "{ACCOUNT}"}}',
    f"{{'account_id': {ACCOUNT}}}",
    f"AccountId={ACCOUNT}",
    f"AWS_ACCOUNT_ID={ACCOUNT}",
    f"account ({ACCOUNT})",
    f"{ACCOUNT}",
    f"in {ACCOUNT}.",
    f"'{ACCOUNT}'",
    f"first\n{ACCOUNT}\nlast",
    f"{ACCOUNT}.dkr.ecr.eu-central-1.amazonaws.com/x",
    f"https://sqs.eu-central-1.amazonaws.com/{ACCOUNT}/queue",
    f"s3://cdk-assets-{ACCOUNT}-eu-central-1/key",
]


@pytest.mark.parametrize("text", ACCOUNT_TEXTS)
def test_no_account_id_survives(text: str) -> None:
    assert ACCOUNT not in mask(text)


ORDINARY = [
    "2026-11-30T09:27:23.123456789012Z",
    "2026-11-30 09:27:23",
    "20261130092723",
    "took 123456789012 ns",
    "took 123456789012ns",
    "wrote 123456789012 bytes",
    "123456789012 rows",
    "elapsed_ns=123456789012",
    '{"max": 123456789012, "min": 234567890123}',
    "[123456789012, 234567890123]",
    "Key (id)=(123456789012) already exists.",
    "0.123456789012",
    "123456789012.5",
    "123,456,789,012",
    "1234567890123",
    "550e8400-e29b-41d4-a716-446655440000",
    "commit 2ba91b8f0c3d4e5a6b7c8d9e0f1a2b3c4d5e6f70",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    'password authentication failed for user "admin"',
    "fe_sendauth: no password supplied",
    "enter the password, please",
    f"{HOST}:5432",
    "postgresql://admin@host:5432/postgres?sslmode=verify-full",
    "SELECT id FROM orders WHERE id = $1",
    "orders_quick   p99  12.345 ms   12345 requests   pass",
    "/tmp/venv/lib/python3.11/site-packages/psycopg/connection.py",
    "connect(host='h', port=5432, dbname='d')",
    "tokens_signed=1",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("text", [*(make(token()) for make in CONTEXTS.values()), *ACCOUNT_TEXTS, *ORDINARY])
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert mask(mask(text)) == mask(text)


def test_only_the_secret_goes() -> None:
    assert mask(f"refused: password=geheim host={HOST}") == f"refused: password=<masked> host={HOST}"


@pytest.mark.parametrize("secret", ["a'b c", r"a\'bcd", r"a'\"'bcd", "'" * 3 + "bcd"])
def test_a_password_in_a_shells_quotes_goes_whole(secret: str) -> None:
    masked = mask(f"PGPASSWORD={shlex.quote(secret)} psql")
    assert "b" not in masked


def test_a_connection_string_inside_json_ends_with_its_quote() -> None:
    assert json.loads(mask(json.dumps({"dsn": "host=h password='x'"}))) == {"dsn": "host=h password='<masked>'"}


def test_json_stays_json() -> None:
    masked = json.loads(mask(json.dumps({"password": 'a"b', "sessionToken": "x\\", "n": 123456789012})))
    assert masked == {"password": "<masked>", "sessionToken": "<masked>", "n": 123456789012}


def test_every_secret_of_several_lines_goes() -> None:
    text = os.linesep.join([f"{number}: PGPASSWORD=secret{number}" for number in range(5)])
    assert "secret" not in mask(text)


@given(st.text(st.sampled_from("'\"\\ =:&?%@/.-,()[]{}<>aAzZ019\n"), max_size=400))
def test_no_text_is_too_odd(text: str) -> None:
    assert mask(mask(text)).count("\n") <= text.count("\n")


def test_a_long_text_takes_time_in_proportion() -> None:
    # Would not end within the test's patience if a rule backtracked.
    for piece in ("password='", "a://b:", "?Action=DbConnect", "%25", "x-", "\\", "AKIA", "account "):
        mask(piece * 3_000)
