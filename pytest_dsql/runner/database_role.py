"""The database role of the function: what it may do, and which IAM role may be it. Removed like everything else.

Source: AWS user guide, "Using database roles and IAM authentication" (CREATE ROLE ... WITH LOGIN, AWS IAM GRANT, AWS
IAM REVOKE). A grant on all tables of a schema covers only those that exist, so it is made when the tables are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.kinds.dsql_cluster import cluster
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.errors import DsqlError
from pytest_dsql.masking import mask
from pytest_dsql.workloads.inserts.workload import SCHEMA

if TYPE_CHECKING:
    import psycopg

#: A transaction that changes the catalog fails when another has done so meanwhile (OC001); then it is tried again.
_TRIES: Final = 20
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+")


@final
class DatabaseRole:
    """A role in a DSQL cluster that an IAM role may be. Its entry's details say where the cluster is reached."""

    kind: Final = "pytest_dsql.runner.database_role:DatabaseRole"
    rank: Final = 80

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, which holds the run's id; None as well when its cluster is gone."""
        if _cluster_is_gone(clients, entry):
            return None
        with _admin(clients, entry) as admin:
            return entry.name if _known(admin, entry.name) else None

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Take the role from its IAM roles, take its rights, and drop it."""
        if _cluster_is_gone(clients, entry):
            return
        with _admin(clients, entry) as admin:
            if not _known(admin, entry.name):
                return
            query = "SELECT arn FROM sys.iam_pg_role_mappings WHERE pg_role_name = %s"
            for (arn,) in _run(admin, query, entry.name).fetchall():
                if _ARN.fullmatch(arn):
                    _run(admin, f"AWS IAM REVOKE {entry.name} FROM '{arn}'")
            for statement in _rights(entry.name, "REVOKE", "FROM"):
                _run(admin, statement)
            _run(admin, f"DROP ROLE {entry.name}")

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when the cluster knows no such role any more, or is gone itself."""
        return self.find(clients, entry) is None

    def scan(self, _clients: Clients, _region: str) -> list[Entry]:
        """Nothing: a role in a database has no tags, and costs nothing."""
        return []


def grant(admin: psycopg.Connection[Any], name: str, iam_role: str) -> None:
    """Make the role, give it its rights, and let the IAM role be it. Safe to repeat.

    Raises DsqlError when the cluster refuses, ValueError for what is no plain name or no ARN of a role: neither can be
    a parameter of these statements.
    """
    if not _NAME.fullmatch(name) or not _ARN.fullmatch(iam_role):
        raise ValueError("a database role has a plain name, and an IAM role an ARN")
    if not _known(admin, name):
        _run(admin, f"CREATE ROLE {name} WITH LOGIN")
    for statement in _rights(name, "GRANT", "TO"):
        _run(admin, statement)
    query = "SELECT 1 FROM sys.iam_pg_role_mappings WHERE pg_role_name = %s AND arn = %s"
    if _run(admin, query, name, iam_role).fetchone() is None:
        _run(admin, f"AWS IAM GRANT {name} TO '{iam_role}'")


def where(endpoint: Endpoint) -> dict[str, Any]:
    """Return what an entry needs to say of where the cluster is."""
    names = ("host", "hostaddr", "port", "sslrootcert", "region")
    return {name: getattr(endpoint, name) for name in names}


def _rights(name: str, verb: str, preposition: str) -> tuple[str, str]:
    return (
        f"{verb} SELECT, INSERT ON {SCHEMA}.rows {preposition} {name}",
        f"{verb} USAGE ON SCHEMA {SCHEMA} {preposition} {name}",
    )


def _known(admin: psycopg.Connection[Any], name: str) -> bool:
    return _run(admin, "SELECT 1 FROM pg_roles WHERE rolname = %s", name).fetchone() is not None


def _run(admin: psycopg.Connection[Any], statement: str, *parameters: str) -> psycopg.Cursor[Any]:
    """Run a statement, again where the catalog was changed meanwhile. Raises DsqlError, one line without account ids.

    What psycopg raises shows the statement with the role's ARN.
    """
    import psycopg

    for left in reversed(range(_TRIES)):
        try:
            return admin.execute(statement.encode(), parameters or None)
        except psycopg.Error as error:
            if left and isinstance(error, psycopg.errors.SerializationFailure):
                continue
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
            what = mask(f"{statement}: {said}")
        raise DsqlError(f"a statement for the function's database role failed: {what}{code}")
    raise AssertionError("unreachable")


@contextmanager
def _admin(clients: Clients, entry: Entry) -> Iterator[psycopg.Connection[Any]]:
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.waking import dial_patiently

    endpoint = Endpoint(**entry.details["where"], auth=IamAuth(profile=clients.profile, role=clients.role))
    with dial_patiently(endpoint, TokenSource(endpoint)) as connection:
        connection.autocommit = True
        yield connection


def _cluster_is_gone(clients: Clients, entry: Entry) -> bool:
    try:
        return cluster(clients, entry.region, entry.details["cluster"]) is None
    except AwsError as error:
        if error.failure is Failure.DENIED:
            return False  # to look at it isn't allowed; connecting will tell
        raise
