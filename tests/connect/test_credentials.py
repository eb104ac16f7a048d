"""AWS credentials: found once, refreshed by botocore, and missed with one clear line."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path

import botocore.session
import pytest

from pytest_dsql.connect import credentials
from pytest_dsql.connect.credentials import forget_credentials, signing_keys
from pytest_dsql.connect.endpoint import IamAuth
from pytest_dsql.errors import CredentialsError

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without credentials; tests add theirs."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("HOME", str(tmp_path))
    forget_credentials()


def message_of(auth: IamAuth) -> str:
    with pytest.raises(CredentialsError) as caught:
        signing_keys(auth)
    message = str(caught.value)
    assert "\n" not in message
    assert "--dsql-profile" in message
    assert "aws sso login" in message
    return message


def set_environment(monkeypatch: pytest.MonkeyPatch, expires_in_s: float | None = None) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if expires_in_s is not None:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=expires_in_s)
        monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", end.isoformat())


def test_keys_given_here_never_ask_for_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.session, "Session", None)
    keys = signing_keys(IamAuth(access_key_id="AKIAX", secret_access_key="s", session_token="t"))
    assert (keys.access_key, keys.secret_key, keys.token, keys.expires_at) == ("AKIAX", "s", "t", None)


def test_no_credentials_is_one_line_that_says_what_was_tried() -> None:
    message = message_of(IamAuth())
    assert "the default chain" in message
    assert "env, " in message
    assert "iam-role" in message


def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'absent'" in message_of(IamAuth(profile="absent"))


def test_an_unknown_profile_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    assert "'absent' (AWS_PROFILE)" in message_of(IamAuth())


def test_half_of_a_pair_of_keys_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    assert "AWS_SECRET_ACCESS_KEY" in message_of(IamAuth())


def test_expired_credentials_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, expires_in_s=-10)
    assert "expired" in message_of(IamAuth())


def test_an_sso_session_that_was_never_begun_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[profile sso]\nsso_start_url=https://example.awsapps.com/start\nsso_region=eu-central-1\n"
        "sso_account_id=123456789012\nsso_role_name=bench\nregion=eu-central-1\n"
    )
    message = message_of(IamAuth(profile="sso"))
    assert "'sso'" in message
    assert "123456789012" not in message


def test_a_broken_configuration_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile\nnonsense")
    message_of(IamAuth(profile="x"))


def test_the_end_of_temporary_credentials_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, expires_in_s=3600)
    expires_at = signing_keys(IamAuth()).expires_at
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert expires_at is not None
    assert 3500 < expires_at - now <= 3600


def test_credentials_are_refreshed_before_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, expires_in_s=3600)
    signing_keys(IamAuth())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
    provided = credentials._provided[None, None]
    provided._expiry_time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=5)
    assert signing_keys(IamAuth()).access_key == "AKIANEW"


def test_one_look_up_serves_the_whole_process(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    first = signing_keys(IamAuth())
    monkeypatch.setattr(botocore.session, "Session", None)
    assert signing_keys(IamAuth()) == first


def test_each_profile_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        f"[one]\naws_access_key_id=AKIAONE\naws_secret_access_key={SECRET}\n"
        f"[two]\naws_access_key_id=AKIATWO\naws_secret_access_key={SECRET}\n"
    )
    assert [signing_keys(IamAuth(profile=name)).access_key for name in ("one", "two", "one")] == [
        "AKIAONE",
        "AKIATWO",
        "AKIAONE",
    ]


def test_a_failed_look_up_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    message_of(IamAuth())
    set_environment(monkeypatch)
    assert signing_keys(IamAuth()).access_key == "AKIAIOSFODNN7EXAMPLE"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_is_not_stopped_by_a_look_up_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    with credentials._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                status = int(signing_keys(IamAuth()).access_key != "AKIAIOSFODNN7EXAMPLE")
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_no_secret_in_the_keys_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    assert SECRET not in repr(signing_keys(IamAuth()))
