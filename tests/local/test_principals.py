"""Identities that are made up, and how they travel."""

from __future__ import annotations

import re

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local.principals import from_json, new_principal, to_json
from pytest_dsql.masking import mask

ROLE = "arn:aws:iam::000000000000:role/r"
SESSION = "arn:aws:sts::000000000000:assumed-role/r/me"


def test_made_up_keys_have_the_form_by_which_secrets_are_recognised() -> None:
    made = [new_principal(ROLE) for _ in range(50)]
    assert all(re.fullmatch(r"AKIA[A-Z2-7]{16}", one.access_key_id) for one in made)
    assert all(re.fullmatch(r"[A-Za-z0-9+/]{40}", one.secret_access_key) for one in made)
    # One in a thousand has no digit.
    assert sum(mask(one.secret_access_key) == "<masked>" for one in made) > 45


def test_the_session_of_a_role_has_a_session_token() -> None:
    principal = new_principal(SESSION)
    assert principal.access_key_id.startswith("ASIA")
    assert principal.session_token


def test_a_principal_travels_whole_and_shows_no_key() -> None:
    principal = new_principal(SESSION, ["DbConnect"])
    assert from_json(to_json(principal)) == principal
    assert principal.secret_access_key not in repr(principal)
    assert str(principal.session_token) not in repr(principal)


@pytest.mark.parametrize("arn", ["", "r", "arn:aws:iam::1:role/r", "arn:aws:s3:::bucket", f"{SESSION}/more"])
def test_what_is_no_identity_is_refused(arn: str) -> None:
    with pytest.raises(UsageError, match="is not the ARN"):
        new_principal(arn)


def test_other_actions_are_refused() -> None:
    with pytest.raises(UsageError, match="DbDisconnect"):
        new_principal(ROLE, ["DbDisconnect"])
