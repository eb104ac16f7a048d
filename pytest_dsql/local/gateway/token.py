"""Verification of IAM tokens: presigned Signature Version 4 requests to `https://<host>/?Action=DbConnect[Admin]`.

The form of a token is that of the AWS SDKs' signers for DSQL (botocore `generate_db_connect_admin_auth_token`,
`@aws-sdk/dsql-signer`): a presigned GET URL without its scheme, the empty payload, `host` the only signed header.
They sign the host name as it was given to them, so a port in it is part of what was signed; botocore leaves out 443.
The algorithm: AWS IAM user guide, "Create a signed AWS API request".
"""

from __future__ import annotations

import hashlib
import hmac
import re
from calendar import timegm
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from time import gmtime, strftime, strptime
from typing import Final, final
from urllib.parse import quote, unquote

from pytest_dsql.local.cluster import ADMIN, Principal

#: The longest life of a token, in seconds (AWS user guide, "Generating an authentication token in Aurora DSQL").
MAX_LIFE_S: Final = 604_800
#: How far a signer's clock may be ahead, in seconds: AWS's own allowance for Signature Version 4.
MAX_AHEAD_S: Final = 300

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_EMPTY_PAYLOAD: Final = hashlib.sha256(b"").hexdigest()
_REQUIRED: Final = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)
_HOST: Final = re.compile(r"(?P<name>[a-zA-Z0-9.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")

# The hints below that a live cluster was seen to give: "Signature expired: ...", "The security token ...",
# "Wrong user to action mapping. ...". The others are Signature Version 4's own well-known wordings, as AWS services
# give them; that DSQL passes them on like those is an inference.
_UNKNOWN_KEY: Final = "The security token included in the request is invalid."
_MISMATCH: Final = (
    "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details."
)


class TokenRefused(Exception):
    """The token does not open this connection. `hint` says why, in AWS's words, and never repeats the token."""

    def __init__(self, hint: str) -> None:
        super().__init__(hint)
        self.hint = hint


@final
@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """What a token says of itself, not yet verified. Has no repr: it is a password."""

    host: str  #: as it was signed, a port included
    host_name: str  #: lower case, without the port
    parameters: tuple[tuple[str, str], ...]  #: of the query, decoded, without the signature
    values: dict[str, str]
    signature: str

    @property
    def region(self) -> str:
        """The Region that it says it is signed for."""
        parts = self.values["X-Amz-Credential"].split("/")
        return parts[2] if len(parts) == 5 else ""


def read(password: bytes) -> Token:
    """Take a token apart.

    Raises TokenRefused when it is none: a plain password, a presigned URL of another form.
    """
    try:
        text = password.decode("ascii")
    except UnicodeDecodeError:
        raise TokenRefused(_missing(_REQUIRED)) from None
    address, _, query = text.partition("?")
    host = _HOST.fullmatch(address.removesuffix("/"))
    parameters: list[tuple[str, str]] = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        parameters.append((unquote(name), unquote(value)))
    values = dict(parameters)
    missing = [name for name in _REQUIRED if not values.get(name)]
    if missing:
        raise TokenRefused(_missing(missing))
    if host is None or len(values) != len(parameters):
        raise TokenRefused(_MISMATCH)
    name = host["name"].lower()
    signed = name if host["port"] in (None, "443") else f"{name}:{host['port']}"
    signature = values.pop("X-Amz-Signature")
    unsigned = tuple(pair for pair in parameters if pair[0] != "X-Amz-Signature")
    return Token(signed, name, unsigned, values, signature)


def verify(
    token: Token,
    *,
    user: str,
    hosts: Container[str],
    region: str,
    principals: Sequence[Principal],
    now: float,
    at: Callable[[float], float] = float,
) -> Principal:
    """Give the principal whose valid token for `user` this is.

    `hosts` are the names the token may be signed for, `now` is in seconds since the epoch, `at` tells what the clock of
    `now` showed at a time of the machine's, which signers sign with. An unknown access key
    takes the same way as a known one with a wrong signature. Raises TokenRefused.
    """
    values = token.values
    if values["X-Amz-Algorithm"] != _ALGORITHM:
        raise TokenRefused(f"Unsupported AWS 'algorithm'. X-Amz-Algorithm only supports \"{_ALGORITHM}\"")
    access_key, date = _read_scope(values["X-Amz-Credential"], region)
    _check_time(values["X-Amz-Date"], values["X-Amz-Expires"], date, now, at)
    if values["X-Amz-SignedHeaders"] != "host":
        raise TokenRefused(_MISMATCH)
    principal = next((known for known in principals if known.access_key_id == access_key), None)
    expected = _signature(token, principal.secret_access_key if principal else "", date, region)
    genuine = hmac.compare_digest(expected.encode(), token.signature.encode())
    session = principal.session_token or "" if principal else ""
    current = hmac.compare_digest(session.encode(), values.get("X-Amz-Security-Token", "").encode())
    if principal is None or not current:
        raise TokenRefused(_UNKNOWN_KEY)
    # A token for another host has a signature that this host can't reproduce.
    if not genuine or token.host_name not in hosts:
        raise TokenRefused(_MISMATCH)
    action = values.get("Action", "")
    if action != ("DbConnectAdmin" if user == ADMIN else "DbConnect"):
        raise TokenRefused(f"Wrong user to action mapping. user: {user}, action: {action}")
    return principal


def _missing(names: Sequence[str]) -> str:
    return " ".join(f"AWS query-string parameters must include '{name}'." for name in names)


def _read_scope(credential: str, region: str) -> tuple[str, str]:
    """Give access key and date of a credential scope that names this service in this region."""
    parts = credential.split("/")
    if len(parts) != 5:
        raise TokenRefused(
            "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term"
        )
    access_key, date, scope_region, service, terminator = parts
    if terminator != "aws4_request":
        raise TokenRefused("Credential should be scoped with a valid terminator: 'aws4_request'.")
    if service != "dsql":
        raise TokenRefused("Credential should be scoped to correct service: 'dsql'.")
    if scope_region != region:
        raise TokenRefused(f"Credential should be scoped to a valid region, not '{scope_region[:64]}'.")
    return access_key, date


def _check_time(signed_at: str, expires: str, scope_date: str, now: float, at: Callable[[float], float]) -> None:
    if not _DATE.fullmatch(signed_at):
        raise TokenRefused("Date must be in ISO-8601 'basic format'. Got something else for X-Amz-Date.")
    if scope_date != signed_at[:8]:
        raise TokenRefused("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP.")
    if not (expires.isascii() and expires.isdigit() and len(expires) < 10):
        raise TokenRefused("X-Amz-Expires should be a number")
    if int(expires) > MAX_LIFE_S:
        raise TokenRefused(
            f"X-Amz-Expires must be less than a week (in seconds); that is, at most {MAX_LIFE_S} seconds"
        )
    try:
        start = at(timegm(strptime(signed_at, "%Y%m%dT%H%M%SZ")))
    except ValueError:
        raise TokenRefused("Date must be in ISO-8601 'basic format'. Got something else for X-Amz-Date.") from None
    if now > start + int(expires):
        limit = _stamp(now - int(expires))
        raise TokenRefused(
            f"Signature expired: {signed_at} is now earlier than {limit} ({_stamp(now)} - {expires} sec.)"
        )
    if start > now + MAX_AHEAD_S:
        limit = f"{_stamp(now + MAX_AHEAD_S)} ({_stamp(now)} + {MAX_AHEAD_S // 60} min.)"
        raise TokenRefused(f"Signature not yet current: {signed_at} is still later than {limit}")


def _stamp(seconds: float) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(seconds))


def _signature(token: Token, secret: str, date: str, region: str) -> str:
    encoded = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in token.parameters)
    query = "&".join(f"{name}={value}" for name, value in encoded)
    canonical = f"GET\n/\n{query}\nhost:{token.host}\n\nhost\n{_EMPTY_PAYLOAD}"
    scope = f"{date}/{region}/dsql/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in (date, region, "dsql", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, f"{_ALGORITHM}\n{token.values['X-Amz-Date']}\n{scope}\n{digest}".encode(), "sha256").hex()
