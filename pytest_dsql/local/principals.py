"""Identities for the engine: made up, or as somebody says, and as they travel over the control socket."""

from __future__ import annotations

import base64
import re
import secrets
import string
from collections.abc import Collection, Mapping
from typing import Any, Final

from pytest_dsql.errors import UsageError
from pytest_dsql.local.cluster import ACTIONS, Principal

#: ARNs of who can sign: roles, users, and the sessions of roles (AWS IAM user guide, "IAM identifiers").
_ARN: Final = re.compile(r"arn:[a-z-]+:(iam::\d{12}:(role|user)/.+|sts::\d{12}:assumed-role/[^/]+/[^/]+)")


def new_principal(arn: str, actions: Collection[str] = ACTIONS) -> Principal:
    """An identity with fresh keys in the form of AWS's, so that whatever knows those knows these for secrets.

    The keys of a role's session come with a session token. `actions` are those of `dsql:DbConnect` and
    `dsql:DbConnectAdmin` that its policy allows. Raises UsageError for what is no identity's ARN, and unknown actions.
    """
    if not _ARN.fullmatch(arn):
        raise UsageError(f"{arn!r} is not the ARN of a role, a user, or a session of a role")
    unknown = sorted(set(actions) - ACTIONS)
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not an action that lets anybody connect: {', '.join(sorted(ACTIONS))}")
    temporary = ":sts:" in arn
    alphabet = string.ascii_uppercase + "234567"
    return Principal(
        arn=arn,
        access_key_id=("ASIA" if temporary else "AKIA") + "".join(secrets.choice(alphabet) for _ in range(16)),
        secret_access_key=base64.b64encode(secrets.token_bytes(30)).decode(),
        session_token=base64.b64encode(secrets.token_bytes(300)).decode() if temporary else None,
        actions=frozenset(actions),
    )


def to_json(principal: Principal) -> dict[str, Any]:
    """A principal as JSON values, keys included: for the control socket, which its user alone can reach."""
    return {
        "arn": principal.arn,
        "access_key_id": principal.access_key_id,
        "secret_access_key": principal.secret_access_key,
        "session_token": principal.session_token,
        "actions": sorted(principal.actions),
    }


def from_json(values: Mapping[str, Any]) -> Principal:
    """The principal that `to_json` wrote."""
    return Principal(**{**values, "actions": frozenset(values["actions"])})
