"""The environment in which any PostgreSQL client or AWS SDK finds the engine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dsql.local.cluster import ADMIN, DATABASE

if TYPE_CHECKING:
    from pytest_dsql.local.client import Engine, LocalCluster

#: Set for the command of `pytest-dsql local -- COMMAND`: the control socket of the engine that runs it.
ENGINE_VARIABLE: Final = "DSQL_LOCAL_ENGINE"

#: What libpq and the AWS SDKs would obey rather than the variables we set, or what fits another server only.
_REMOVED: Final = (
    *("PGSERVICE", "PGSERVICEFILE", "PGPASSFILE", "PGOPTIONS", "PGSYSCONFDIR"),
    *("PGREQUIREAUTH", "PGCHANNELBINDING", "PGREQUIRESSL", "PGREQUIREPEER"),
    *("PGKRBSRVNAME", "PGGSSLIB", "PGGSSENCMODE", "PGGSSDELEGATION"),
    *("PGSSLCERT", "PGSSLKEY", "PGSSLCERTMODE", "PGSSLCRL", "PGSSLCRLDIR"),
    *("PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION"),
    *("PGTARGETSESSIONATTRS", "PGLOADBALANCEHOSTS"),
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_CREDENTIAL_EXPIRATION"),
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)


def client_variables(engine: Engine, token: str, cluster: LocalCluster | None = None) -> dict[str, str]:
    """The variables that lead to one of the engine's clusters, by default the first, as `admin`, with throw-away keys.

    `token` is one for that cluster.
    """
    cluster = cluster or engine.cluster
    return {
        "PGHOST": cluster.host,
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(engine.port),
        "PGUSER": ADMIN,
        "PGDATABASE": DATABASE,
        "PGPASSWORD": token,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": str(engine.ca_file),
        "DSQL_ENDPOINT": cluster.host,
        **({"DSQL_ENDPOINTS": ",".join(one.host for one in cluster.endpoints)} if len(cluster.endpoints) > 1 else {}),
        "AWS_REGION": cluster.region,
        "AWS_DEFAULT_REGION": cluster.region,
        "AWS_ACCESS_KEY_ID": engine.credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": engine.credentials.secret_access_key,
        ENGINE_VARIABLE: str(engine.control),
    }


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process, changed so that a client finds the engine and nothing else."""
    return {name: value for name, value in os.environ.items() if name not in _REMOVED} | dict(variables)


def write_environment_file(directory: Path, variables: Mapping[str, str]) -> Path:
    """Write the variables for a shell to read (`. FILE`); only this user can. It goes with the engine's directory."""
    path = directory / "environment"
    lines = [f"unset {' '.join(_REMOVED)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path
