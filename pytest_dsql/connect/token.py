"""IAM tokens: signed once, shared by all connections of a process, renewed before they run out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, final
from urllib.parse import quote

from pytest_dsql.connect.credentials import SigningKeys, signing_keys
from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth
from pytest_dsql.errors import CredentialsError, UsageError

#: A token's life unless asked otherwise, and the longest there is (AWS user guide, "Generating an authentication token
#: in Amazon Aurora DSQL"). It also ends with the credentials that signed it.
TOKEN_LIFE_S: Final = 900
LONGEST_LIFE_S: Final = 604_800
#: A token of RDS and Aurora lives 15 minutes, never longer (RDS user guide, "IAM database authentication").
LONGEST_RDS_LIFE_S: Final = 900

#: How long one token is handed out.
REUSE_S: Final = 600
#: No token with less life left than this is handed out: the server looks at it only after TCP and TLS.
MARGIN_S: Final = 60
#: How long to go on with a good token after a renewal failed, before the next try.
RETRY_S: Final = 10


def sign_token(endpoint: Endpoint, keys: SigningKeys | None = None, expires_s: int = TOKEN_LIFE_S) -> str:
    """Sign a token that lets `endpoint.user` connect, valid for `expires_s` seconds (1 to 604,800; RDS: to 900).

    `keys` default to those of the endpoint's credentials. A presigned URL without its scheme: on DSQL for the action
    DbConnectAdmin as `admin` and DbConnect as anybody else, on RDS for `connect` with the role's name (botocore's
    `generate_db_auth_token`). Nothing is sent anywhere, and it takes about 0.1 ms.
    Raises CredentialsError, and UsageError for a life out of range or an endpoint without IAM.
    """
    if not isinstance(endpoint.auth, IamAuth):
        raise UsageError(f"{endpoint.host} authenticates with a password: there is no token to sign")
    service = endpoint.auth.service
    longest = LONGEST_LIFE_S if service == "dsql" else LONGEST_RDS_LIFE_S
    if not 1 <= expires_s <= longest:
        raise UsageError(f"a token lives between 1 and {longest} seconds, not {expires_s}")
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    if service == "dsql":
        action = "DbConnectAdmin" if endpoint.user == "admin" else "DbConnect"
        url = f"https://{endpoint.host}/?Action={action}"
    else:
        url = f"https://{endpoint.host}:{endpoint.port}/?Action=connect&DBUser={quote(endpoint.user, safe='')}"
    request: Any = AWSRequest("GET", url)
    SigV4QueryAuth(keys or signing_keys(endpoint.auth), service, endpoint.region, expires=expires_s).add_auth(request)
    return str(request.url).removeprefix("https://")


@final
@dataclass(frozen=True, slots=True)
class _Signed:
    text: str = field(repr=False)
    signed_at: float
    renew_at: float  #: from here on a new one is signed
    usable_until: float  #: from here on it is not handed out, whatever happens

    def usable(self, now: float) -> bool:
        # A clock that was set back would make the token one from the future, which the server refuses.
        return self.signed_at <= now < self.usable_until


@final
class _Flight:
    """One renewal under way: its leader signs, the others wait for the same outcome."""

    __slots__ = ("done", "error", "signed")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.signed: _Signed | None = None
        self.error: CredentialsError | None = None


@final
class TokenSource:
    """The passwords for an endpoint's connections: a current IAM token, or the endpoint's own password.

    Thread-safe: however many threads ask at once, one signs (and looks up the credentials), the rest share the outcome,
    good or bad. One source per process; the endpoint travels to other processes, the source does not.
    """

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float] = time.time) -> None:
        self.endpoint: Final = endpoint
        self._clock = clock
        self._current: _Signed | None = None
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._flight: _Flight | None = None
        self._signatures = 0

    @property
    def signed(self) -> int:
        """How many tokens were signed in this process."""
        return self._signatures

    def token(self) -> str:
        """Return a token with at least a minute to live, at most ten minutes old.

        For an endpoint with a password it is that password, "" when libpq is to find one. Raises CredentialsError.
        """
        auth = self.endpoint.auth
        if isinstance(auth, PasswordAuth):
            return auth.password or ""
        while True:
            current = self._current
            now = self._clock()
            if current is not None and current.usable(now) and now < current.renew_at:
                return current.text
            renewed = self._renew(auth)
            if renewed is not None:
                return renewed.text

    def discard(self, signature: int) -> None:
        """Sign anew for the next connection: the server refused the token that was the `signature`-th signed."""
        with self._lock:
            if self._signatures == signature:
                self._current = None

    def _renew(self, auth: IamAuth) -> _Signed | None:
        """Sign, or share another thread's signature. None: look again, that thread gave up without an outcome."""
        if self._process != os.getpid():
            self._begin()  # the lock may have been held by a thread that was not forked along
        with self._lock:
            current = self._current
            now = self._clock()  # after `current` was read: another thread may just have signed it
            if current is not None and current.usable(now) and now < current.renew_at:
                return current
            flight = self._flight
            if leads := flight is None:
                flight = self._flight = _Flight()
        assert flight is not None
        if leads:
            self._lead(flight, auth, current, now)
        elif current is not None and current.usable(now):
            return current
        else:
            flight.done.wait()
        if flight.error is not None:
            # An error of one's own: raising one object in many threads would mix up their tracebacks.
            raise CredentialsError(str(flight.error))
        return flight.signed

    def _lead(self, flight: _Flight, auth: IamAuth, current: _Signed | None, now: float) -> None:
        try:
            flight.signed = self._current = self._sign(auth)
        except CredentialsError as error:
            if current is not None and current.usable(now):
                flight.signed = self._current = replace(current, renew_at=now + RETRY_S)
            else:
                flight.error = error
        finally:
            with self._lock:
                self._flight = None
            flight.done.set()

    def _sign(self, auth: IamAuth) -> _Signed:
        keys = signing_keys(auth)
        now = self._clock()
        end = now + TOKEN_LIFE_S
        if keys.expires_at is not None:
            end = min(end, keys.expires_at)
        usable_until = end - MARGIN_S
        if usable_until <= now:
            raise CredentialsError(
                f"the AWS credentials for {self.endpoint.host} have expired or will within {MARGIN_S} s: sign in again"
                " (`aws sso login`) or name another profile (--dsql-profile)"
            )
        text = sign_token(self.endpoint, keys)
        self._signatures += 1
        return _Signed(text, now, min(now + REUSE_S, usable_until), usable_until)

    def __repr__(self) -> str:
        return f"<TokenSource for {self.endpoint.describe()}, {self._signatures} signed>"
