"""AWS credentials: looked up once per process and profile, with one clear line when there are none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
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
    return _freeze(credentials_of(auth.profile, auth.role), auth.profile)


def credentials_of(profile: str | None, role: str | None = None) -> Any:
    """Return botocore's credentials of a profile (None: its usual chain), or of a role assumed with them.

    They refresh themselves, and are shared by all who ask in this process. Raises CredentialsError.
    """
    with _lock:
        provided = _provided.get((profile, role))
        if provided is None:
            provided = _provided[profile, role] = _look_up(profile, role)
    return provided


def forget_credentials() -> None:
    """Forget what was looked up, so that the next call looks anew."""
    global _lock, _provided  # noqa: PLW0603 - one cache per process, and a child must not inherit a held lock
    _lock = threading.Lock()
    _provided = {}


_lock: threading.Lock
_provided: dict[tuple[str | None, str | None], Any]  #: of a profile and a role: botocore's credentials
forget_credentials()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_credentials)


def _look_up(profile: str | None, role: str | None) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    whose = _name(profile)
    try:
        session = Session(profile=profile)
        found = session.get_credentials()
        if found is not None:
            return found if role is None else _assumed(session, found, role)
        tried = ", ".join(one.METHOD for one in session.get_component("credential_provider").providers)
        reason = f"none of botocore's providers had any ({tried})"
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        reason = _one_line(error)
    raise CredentialsError(f"no usable AWS credentials from {whose}: {reason}; {_REMEDIES}")


def _assumed(session: Any, source: Any, role: str) -> Any:
    """Return credentials of a role, assumed when they are first needed and again before they run out."""
    from functools import partial

    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    # STS answers in every Region; one has to be named.
    client: Callable[..., Any] = partial(
        session.create_client, region_name=session.get_config_variable("region") or "us-east-1"
    )
    fetcher = AssumeRoleCredentialFetcher(client, source, role, extra_args={"RoleSessionName": "pytest-dsql"})
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


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
