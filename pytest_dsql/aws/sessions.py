"""Clients of AWS's services: one session per profile and role, every call's failure in one clear line."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, explained
from pytest_dsql.errors import CredentialsError, MissingExtra, UsageError

#: botocore's standard mode waits up to 20 s between two tries and repeats calls that were throttled or not answered;
#: what lasts longer is `creating`'s and `reaper`'s to wait for.
_TRIES: Final = 4
_CONNECT_S: Final = 10
_READ_S: Final = 60


@final
class Clients:
    """Makes clients, each once. Thread-safe. The credentials are looked up with the first call.

    `profile` and `role` as in `connect.endpoint.IamAuth`. AWS's own settings are obeyed: AWS_ENDPOINT_URL, the
    configuration file, proxies. Where boto3 is not installed the first use raises MissingExtra.
    """

    def __init__(self, *, profile: str | None = None, role: str | None = None) -> None:
        self.profile: Final = profile
        self.role: Final = role
        self._lock = threading.RLock()
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}
        self._account: str | None = None

    def of(self, service: str, region: str) -> Any:
        """Return the boto3 client of a service in a Region. Raises CredentialsError, UsageError."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        with self._lock:
            client = self._clients.get((service, region))
            if client is None:
                config = Config(
                    retries={"mode": "standard", "total_max_attempts": _TRIES},
                    connect_timeout=_CONNECT_S,
                    read_timeout=_READ_S,
                    user_agent_appid="pytest-dsql",
                )
                try:
                    client = self._opened().client(service, region_name=region, config=config)
                except (BotoCoreError, ValueError) as error:
                    raise UsageError(f"no client of {service} in {region!r}: {error}") from None
                self._clients[service, region] = client
        return client

    def call(self, service: str, region: str, operation: str, /, **parameters: Any) -> dict[str, Any]:
        """Call an operation, by its Python name (`create_cluster`). Raises AwsError, CredentialsError."""
        client = self.of(service, region)
        with _explaining(client, operation, region):
            answer: dict[str, Any] = getattr(client, operation)(**parameters)
        return answer

    def pages(self, service: str, region: str, operation: str, key: str, /, **parameters: Any) -> Iterator[Any]:
        """Give the items under `key` of all pages of an operation's answer. Raises AwsError, CredentialsError."""
        client = self.of(service, region)
        with _explaining(client, operation, region):
            for page in client.get_paginator(operation).paginate(**parameters):
                yield from page.get(key) or ()

    @property
    def account(self) -> str:
        """The account's id, asked once. For the inventory alone: it is shown nowhere. Raises AwsError."""
        with self._lock:
            if self._account is None:
                self._account = str(
                    self.call("sts", self.default_region or "us-east-1", "get_caller_identity")["Account"]
                )
        return self._account

    @property
    def default_region(self) -> str | None:
        """The Region that the user's environment or profile names, None when neither does.

        `AWS_REGION` counts as in all other AWS SDKs: boto3 knows `AWS_DEFAULT_REGION` only (AWS SDKs and Tools
        reference guide, "AWS Region"). Both win over the profile.
        """
        with self._lock:
            region = self._opened().region_name
        if not os.environ.get("AWS_DEFAULT_REGION"):
            region = os.environ.get("AWS_REGION") or region
        return str(region) if region else None

    def partition(self, region: str) -> str:
        """Return the partition that a Region is in: `aws`, `aws-cn`, ..."""
        with self._lock:
            return str(self._opened().get_partition_for_region(region))

    def services_in(self, service: str) -> list[str]:
        """Return the Regions in which botocore knows a service to be."""
        with self._lock:
            return list(self._opened().get_available_regions(service))

    def _opened(self) -> Any:
        """Make the session, which signs with the same credentials as the tokens of connections."""
        if self._session is None:
            try:
                import boto3
            except ImportError:
                raise MissingExtra("working with an AWS account", "aws") from None
            from botocore.credentials import CredentialProvider
            from botocore.exceptions import BotoCoreError
            from botocore.session import Session

            from pytest_dsql.connect.credentials import credentials_of

            profile, role = self.profile, self.role

            class Shared(CredentialProvider):  # type: ignore[misc]  # botocore has no types
                METHOD = CANONICAL_NAME = "pytest-dsql"

                def load(self) -> Any:
                    return credentials_of(profile, role)

            try:
                session = Session(profile=profile)
                session.get_component("credential_provider").insert_before("env", Shared())
                self._session = boto3.Session(botocore_session=session)
            except BotoCoreError as error:
                which = f"the profile {profile!r}" if profile else "the AWS configuration that is there"
                raise CredentialsError(f"no AWS session with {which}: {error}") from None
        return self._session

    def __repr__(self) -> str:
        return f"<Clients of {self.profile or 'the default chain'}{', in a role' if self.role else ''}>"


@final
class _explaining:  # noqa: N801 - reads as a word in `with`
    """Turns botocore's exceptions into ours."""

    def __init__(self, client: Any, operation: str, region: str) -> None:
        self._client = client
        self._operation = operation
        self._region = region

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            return
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        if isinstance(error, BotoCoreError | ClientError | ResponseParserError):
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> AwsError:
        meta = self._client.meta
        return explained(
            error,
            service=str(meta.service_model.signing_name),
            operation=str(meta.method_to_api_mapping.get(self._operation, self._operation)),
            region=self._region,
        )
