"""AWS credentials: looked up once per process and profile, with one clear line when there are none."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any, Final, final

from pytest_dsql.connect.endpoint import IamAuth
from pytest_dsql.errors import CredentialsError
from pytest_dsql.masking import mask

_REMEDIES: Final = (
    "name a profile (--dsql-profile), sign in (`aws sso login`), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@final
@dataclass(frozen=True, slots=True)
class SigningKeys:
    """What signs a token, under the attribute names that botocore's signers read."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires_at: float | None = None  #: seconds since the epoch; None where the credentials do not tell


def signing_keys(auth: IamAuth) -> SigningKeys:
    """Return the keys to sign with now; credentials near their end are refreshed by botocore first.

    Keys in `auth` are taken as they are, without a look at the user's own credentials. Raises CredentialsError.
    """
    if auth.access_key_id is not None and auth.secret_access_key is not None:
        return SigningKeys(auth.access_key_id, auth.secret_access_key, auth.session_token)
    with _lock:
        provided = _provided.get(auth.profile)
        if provided is None:
            provided = _provided[auth.profile] = _look_up(auth.profile)
    return _freeze(provided, auth.profile)


def forget_credentials() -> None:
    """Forget what was looked up, so that the next call looks anew."""
    global _lock, _provided  # noqa: PLW0603 - one cache per process, and a child must not inherit a held lock
    _lock = threading.Lock()
    _provided = {}


_lock: threading.Lock
_provided: dict[str | None, Any]  #: profile -> botocore's credentials, which refresh themselves
forget_credentials()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_credentials)


def _look_up(profile: str | None) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    whose = _name(profile)
    try:
        session = Session(profile=profile)
        found = session.get_credentials()
        if found is not None:
            return found
        tried = ", ".join(one.METHOD for one in session.get_component("credential_provider").providers)
        reason = f"none of botocore's providers had any ({tried})"
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        reason = _one_line(error)
    raise CredentialsError(f"no usable AWS credentials from {whose}: {reason}; {_REMEDIES}")


def _freeze(provided: Any, profile: str | None) -> SigningKeys:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        frozen = provided.get_frozen_credentials()
    # RuntimeError is how botocore says that refreshed credentials are still expired.
    except (BotoCoreError, ClientError, OSError, ValueError, RuntimeError) as error:
        reason = _one_line(error)
    else:
        if frozen.access_key and frozen.secret_key:
            # botocore tells the time of expiry in no public attribute; without it a token is still renewed every ten
            # minutes.
            expiry = getattr(provided, "_expiry_time", None)
            return SigningKeys(
                frozen.access_key, frozen.secret_key, frozen.token, expiry.timestamp() if expiry is not None else None
            )
        reason = "the provider's answer lacks a key"
    raise CredentialsError(f"the AWS credentials of {_name(profile)} could not be used: {reason}; {_REMEDIES}")


def _name(profile: str | None) -> str:
    if profile is not None:
        return f"the profile {profile!r}"
    environment = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    return f"the profile {environment!r} (AWS_PROFILE)" if environment else "the default chain"


def _one_line(error: Exception) -> str:
    return mask(" ".join(str(error).split())).rstrip(".")
