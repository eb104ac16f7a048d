"""Tokens: signed as AWS signs them, once for everybody, never handed out near their end."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import botocore.session
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.connect import token as token_module
from pytest_dsql.connect.credentials import SigningKeys
from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth
from pytest_dsql.connect.token import LONGEST_LIFE_S, MARGIN_S, REUSE_S, TOKEN_LIFE_S, TokenSource, sign_token
from pytest_dsql.errors import CredentialsError, UsageError

HOST = "abcdefghijklmnopqrstuvwxyz.dsql.eu-central-1.on.aws"
AUTH = IamAuth(access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="secret/key", session_token="session/token+=")
ENDPOINT = Endpoint(HOST, auth=AUTH)


@pytest.mark.parametrize(
    ("user", "generate"),
    [("admin", "generate_db_connect_admin_auth_token"), ("app", "generate_db_connect_auth_token")],
)
def test_the_token_is_what_aws_own_client_signs(user: str, generate: str) -> None:
    client = botocore.session.Session().create_client(
        "dsql",
        region_name="eu-central-1",
        aws_access_key_id=AUTH.access_key_id,
        aws_secret_access_key=AUTH.secret_access_key,
        aws_session_token=AUTH.session_token,
    )
    endpoint = replace(ENDPOINT, user=user)
    pairs = ((sign_token(endpoint), getattr(client, generate)(HOST)) for _ in range(10))
    # Both write the second in which they sign; one of ten pairs at least falls into the same.
    assert any(ours == theirs for ours, theirs in pairs)


RDS = Endpoint(
    "db.abc.eu-central-1.rds.amazonaws.com",
    5433,
    user="app user",
    region="eu-central-1",
    auth=replace(AUTH, service="rds-db"),
    dialect="postgresql",
)


def test_the_token_for_rds_is_what_aws_own_client_signs() -> None:
    client = botocore.session.Session().create_client(
        "rds",
        region_name="eu-central-1",
        aws_access_key_id=AUTH.access_key_id,
        aws_secret_access_key=AUTH.secret_access_key,
        aws_session_token=AUTH.session_token,
    )
    pairs = ((sign_token(RDS), client.generate_db_auth_token(RDS.host, RDS.port, RDS.user)) for _ in range(10))
    assert any(ours == theirs for ours, theirs in pairs)  # both write the second in which they sign


def test_a_token_for_rds_lives_fifteen_minutes_at_most() -> None:
    with pytest.raises(UsageError, match="900"):
        sign_token(RDS, expires_s=901)


def test_a_longer_life_is_signed_in() -> None:
    query = urllib.parse.parse_qs(urllib.parse.urlsplit("//" + sign_token(ENDPOINT, expires_s=LONGEST_LIFE_S)).query)
    assert query["X-Amz-Expires"] == ["604800"]


@pytest.mark.parametrize("expires_s", [0, -1, LONGEST_LIFE_S + 1])
def test_a_life_out_of_range_is_refused(expires_s: int) -> None:
    with pytest.raises(UsageError, match="604800"):
        sign_token(ENDPOINT, expires_s=expires_s)


def test_an_endpoint_with_a_password_has_no_token() -> None:
    with pytest.raises(UsageError, match="password"):
        sign_token(Endpoint("db", auth=PasswordAuth("x"), dialect="postgresql"))


@pytest.mark.parametrize(("password", "expected"), [("x", "x"), (None, "")])
def test_the_source_of_an_endpoint_with_a_password_hands_that_out(password: str | None, expected: str) -> None:
    source = TokenSource(Endpoint("db", auth=PasswordAuth(password), dialect="postgresql"))
    assert (source.token(), source.signed) == (expected, 0)


class Crowd:
    """A clock that lets whoever signs wait until all `threads` have asked for a token."""

    def __init__(self, threads: int) -> None:
        self.looked = 0
        self._missing = 2 * threads  # a thread reads the clock before the lock and behind it
        self._changed = threading.Condition()

    def clock(self) -> float:
        with self._changed:
            self._missing -= 1
            self._changed.notify_all()
        return 1_000_000.0

    def keys(self, auth: IamAuth) -> SigningKeys:
        self.looked += 1
        with self._changed:
            assert self._changed.wait_for(lambda: self._missing <= 0, timeout=30)
        return SigningKeys("AKIAIOSFODNN7EXAMPLE", "secret")

    def no_keys(self, auth: IamAuth) -> SigningKeys:
        self.keys(auth)
        raise CredentialsError("nothing there")


def test_256_first_connections_sign_once_and_look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(256)
    monkeypatch.setattr(token_module, "signing_keys", crowd.keys)
    source = TokenSource(ENDPOINT, clock=crowd.clock)
    with ThreadPoolExecutor(256) as threads:
        tokens = [threads.submit(source.token) for _ in range(256)]
    assert len({token.result() for token in tokens}) == 1
    assert source.signed == 1
    assert crowd.looked == 1


def test_a_crowd_shares_one_failed_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(64)
    monkeypatch.setattr(token_module, "signing_keys", crowd.no_keys)
    source = TokenSource(ENDPOINT, clock=crowd.clock)
    with ThreadPoolExecutor(64) as threads:
        errors = [one.exception() for one in [threads.submit(source.token) for _ in range(64)]]
    assert {str(error) for error in errors} == {"nothing there"}
    assert len({id(error) for error in errors}) == 64  # one object in many threads would mix up tracebacks
    assert crowd.looked == 1


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Signer:
    """Signs by noting when; its credentials may end, and may be gone."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.expires_at: float | None = None
        self.gone = False

    def keys(self, auth: IamAuth) -> SigningKeys:
        if self.gone:
            raise CredentialsError("gone")
        return SigningKeys("AKIA", "secret", None, self.expires_at)

    def sign(self, endpoint: Endpoint, keys: SigningKeys) -> str:
        end = self.clock.now + TOKEN_LIFE_S
        return f"{self.clock.now} {end if keys.expires_at is None else min(end, keys.expires_at)}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Signer:
    signer = Signer(clock)
    monkeypatch.setattr(token_module, "signing_keys", signer.keys)
    monkeypatch.setattr(token_module, "sign_token", signer.sign)
    return signer


def test_a_token_is_reused_for_ten_minutes(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    first = source.token()
    clock.now += REUSE_S - 1
    assert source.token() == first
    clock.now += 1
    assert source.token() != first
    assert source.signed == 2


def test_a_token_is_renewed_before_its_credentials_end(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    signer.expires_at = clock.now + 200
    first = source.token()
    clock.now += 200 - MARGIN_S
    signer.expires_at = clock.now + 3600
    assert source.token() != first


def test_credentials_that_are_about_to_end_sign_nothing(signer: Signer, clock: Clock) -> None:
    signer.expires_at = clock.now + MARGIN_S
    with pytest.raises(CredentialsError, match="--dsql-profile"):
        TokenSource(ENDPOINT, clock=clock).token()


def test_a_good_token_outlives_a_failed_renewal(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    first = source.token()
    signer.gone = True
    clock.now += REUSE_S
    assert source.token() == first
    clock.now += TOKEN_LIFE_S - MARGIN_S - REUSE_S
    with pytest.raises(CredentialsError, match="gone"):
        source.token()


def test_a_failed_renewal_is_not_tried_for_every_connection(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    first = source.token()
    signer.gone = True
    clock.now += REUSE_S
    source.token()
    signer.gone = False
    clock.now += 1
    assert source.token() == first


def test_a_clock_set_back_means_a_new_token(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    first = source.token()
    clock.now -= 30
    assert source.token() != first


def test_a_refused_token_is_signed_anew_once(signer: Signer, clock: Clock) -> None:
    source = TokenSource(ENDPOINT, clock=clock)
    source.token()
    refused = source.signed
    clock.now += 1
    for _ in range(10):  # ten connections were refused with the same token
        source.discard(refused)
        source.token()
    assert source.signed == 2


steps = st.lists(
    st.tuples(
        st.sampled_from(["wait", "wait", "wait", "set back", "credentials end", "credentials last", "gone", "back"]),
        st.floats(0, 1_000, allow_nan=False),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps=steps)
def test_no_token_near_its_end_is_ever_handed_out(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    signer = Signer(clock)
    source = TokenSource(ENDPOINT, clock=clock)
    waited, disturbances = 0.0, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_module, "signing_keys", signer.keys)
        patch.setattr(token_module, "sign_token", signer.sign)
        for step, amount in steps:
            if step == "wait":
                clock.now += amount
                waited += amount
            elif step == "set back":
                clock.now -= amount
                disturbances += 1
            elif step == "credentials end":
                signer.expires_at = clock.now + amount
                disturbances += 1
            elif step == "credentials last":
                signer.expires_at = None
            else:
                signer.gone = step == "gone"
            try:
                text = source.token()
            except CredentialsError:
                assert signer.gone or (signer.expires_at or 0) <= clock.now + MARGIN_S
                continue
            signed_at, end = map(float, text.split())
            assert signed_at <= clock.now <= signed_at + TOKEN_LIFE_S - MARGIN_S
            assert clock.now < end - MARGIN_S
    # At most one signature per ten minutes, clock set back, or end of credentials; these may end twice before others
    # take their place.
    assert source.signed <= 2 * disturbances + waited / REUSE_S


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_signs_for_itself() -> None:
    source = TokenSource(ENDPOINT)
    source.token()
    source._lock.acquire()  # as another thread might hold it at the moment of the fork
    source._current = None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for the lock ends, and the test fails
        try:
            os.write(writer, f"{bool(source.token())} {source.signed}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        assert os.read(reader, 100) == b"True 1"
    finally:
        os.waitpid(child, 0)
        os.close(reader)


def test_the_endpoint_travels_to_a_worker_and_signs_there() -> None:
    endpoint = pickle.loads(pickle.dumps(ENDPOINT))
    assert TokenSource(endpoint).token().startswith(f"{HOST}/?Action=DbConnectAdmin&")


def test_no_repr_shows_a_token() -> None:
    source = TokenSource(ENDPOINT)
    signature = source.token().rpartition("=")[2]
    assert signature not in repr(source) + repr(vars(source)) + repr(ENDPOINT) + repr(AUTH)
