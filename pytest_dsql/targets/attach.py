"""Attach to an endpoint that exists already: an Aurora DSQL cluster, or any PostgreSQL by DSN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.aws.policies import Grant
from pytest_dsql.errors import ConnectionFailed, UsageError
from pytest_dsql.targets.patience import patience
from pytest_dsql.targets.target import Target

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.settings import Settings

#: What attaching to a cluster asks of AWS.
ACTIONS: Final = (Grant(("dsql:DbConnectAdmin", "dsql:DbConnect"), ("arn:aws:dsql:*:*:cluster/*",)),)

#: How long the first queries may take.
_PATIENCE_S: Final = 10.0


def endpoint_of(settings: Settings) -> Endpoint:
    """Make the endpoint that the settings name. Raises UsageError when they don't make one."""
    from pytest_dsql.connect.endpoint import Endpoint

    if settings.dsn:
        return Endpoint.from_dsn(settings.dsn)
    if not settings.endpoint:
        raise UsageError("target 'attach' needs --dsql-endpoint HOST_OR_CLUSTER_ID or --dsql-dsn DSN")
    return Endpoint.for_cluster(
        settings.endpoint, region=settings.region, user=settings.user, profile=settings.profile, role=settings.role
    )


def attach(settings: Settings) -> Target:
    """Connect once, and return the target. Creates nothing.

    Raises UsageError, CredentialsError or ConnectionFailed, each one clear line.
    """
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.waking import dial_patiently

    endpoint = endpoint_of(settings)
    _refuse_expired(endpoint.host)
    endpoint = endpoint.resolved()
    tokens = TokenSource(endpoint)
    with dial_patiently(endpoint, tokens) as connection:
        dialect, facts = ask_who_is_there(connection, endpoint)
    if dialect != endpoint.dialect:
        endpoint = replace(endpoint, dialect=dialect)
        tokens = TokenSource(endpoint)
    return Target(name="attach", endpoint=endpoint, tokens=tokens, facts=facts)


def _refuse_expired(host: str) -> None:
    """Do no new work on what an earlier run created and kept, and what has reached its maximum life."""
    from pytest_dsql.aws.inventory import Inventory, inventories

    for path in inventories():
        inventory = Inventory.read(path)
        for entry in inventory.remaining:
            known = (entry.details.get("identifier"), entry.details.get("host"))
            if inventory.expired() and (host in known or host.partition(".")[0] in known):
                raise UsageError(
                    f"{host} was created by run {inventory.run}, and its maximum life ended at "
                    f"{inventory.expires_at:%Y-%m-%dT%H:%MZ}: it takes no new work; `pytest-dsql reap` removes it"
                )


def _silent(endpoint: Endpoint) -> ConnectionFailed:
    return ConnectionFailed(
        f"{endpoint.describe()} accepted the login, but did not answer a query within {_PATIENCE_S:g} s",
        phase="startup",
    )


def ask_who_is_there(connection: psycopg.Connection[Any], endpoint: Endpoint) -> tuple[Any, dict[str, Any]]:
    """Return the dialect and what the results file says of the server. Raises ConnectionFailed."""
    import psycopg

    try:
        with patience(connection, _PATIENCE_S, _silent(endpoint)):
            return _ask(connection)
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise ConnectionFailed(
            f"{endpoint.describe()} does not answer as PostgreSQL does: {said}",
            phase="startup",
            sqlstate=error.sqlstate,
        ) from None


def _ask(connection: psycopg.Connection[Any]) -> tuple[Any, dict[str, Any]]:
    """Tell DSQL from PostgreSQL by the function that only DSQL has (AWS user guide, "Systems tables and commands")."""
    import psycopg

    try:
        connection.execute("SELECT sys.dsql_major_version()")
        dialect = "dsql"
    except psycopg.Error:
        dialect = "postgresql"
    version = connection.execute("SELECT version()").fetchone()
    return dialect, {"dialect": dialect, "server": str(version[0]) if version else ""}
