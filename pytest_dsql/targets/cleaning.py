"""Leaves the embedded engine's database as a test found it: what the test created is dropped after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.errors import DsqlError
from pytest_dsql.targets.patience import patience

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.targets.target import Target

#: How long dropping may wait for a connection that still holds what is to be dropped, in seconds.
_PATIENCE_S: Final = 10.0

#: How often a statement is run before the catalog's changes are taken for a fault.
_TRIES: Final = 10

#: kind, identity, text for DROP - of what users make. Workloads' schemas are no test's: they stay for the whole run.
_OBJECTS: Final = """
SELECT 'SCHEMA', oid, quote_ident(nspname) FROM pg_namespace
 WHERE nspname !~ '^(pg_|pytest_dsql_)' AND nspname NOT IN ('information_schema', 'sys')
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid,
       quote_ident(nspname) || '.' || quote_ident(relname)
  FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE relkind IN ('r', 'v', 'S') AND nspname !~ '^(pg_|pytest_dsql_)' AND nspname NOT IN ('information_schema', 'sys')
UNION ALL
SELECT 'FUNCTION', p.oid, p.oid::regprocedure::text
  FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
 WHERE nspname !~ '^(pg_|pytest_dsql_)' AND nspname NOT IN ('information_schema', 'sys')
UNION ALL
SELECT 'DOMAIN', t.oid, quote_ident(nspname) || '.' || quote_ident(typname)
  FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace
 WHERE typtype = 'd' AND nspname !~ '^(pg_|pytest_dsql_)' AND nspname NOT IN ('information_schema', 'sys')
UNION ALL
SELECT 'ROLE', oid, quote_ident(rolname) FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> 'admin'
"""
_ORDER: Final = ("VIEW", "TABLE", "SEQUENCE", "FUNCTION", "DOMAIN", "SCHEMA", "ROLE")

#: What a role has to be rid of before it can be dropped: trust in identities, and then what it was granted.
_TRUST: Final = "SELECT quote_literal(arn) FROM sys.iam_pg_role_mappings WHERE pg_role_oid = %d"


@contextmanager
def removing_new_objects(target: Target) -> Iterator[None]:
    """Drop, at the end, what was not there at the start. For the embedded engine only: it is ours altogether.

    Raises DsqlError when an open transaction of another connection keeps something from being dropped.
    """
    with target.connect() as connection:
        before = {identity for _kind, identity, _name in _objects(connection)}
    yield
    if target.engine.ended() is not None:
        return  # with everything that was in it
    with target.connect() as connection, patience(connection, _PATIENCE_S, _too_long()):
        _drop_all_but(connection, before)


def _too_long() -> DsqlError:
    return DsqlError(
        f"what the test created could not be dropped within {_PATIENCE_S:g} s: a connection that it left open is "
        "in a transaction; close it, or commit"
    )


def _objects(connection: psycopg.Connection[Any]) -> list[tuple[str, int, str]]:
    return _run(connection, _OBJECTS.encode()).fetchall()


def _run(connection: psycopg.Connection[Any], statement: bytes) -> psycopg.Cursor[Any]:
    """Run a statement, again when the catalog has changed: what the test left may still be changing it (jobs)."""
    import psycopg

    for _ in range(_TRIES - 1):
        with suppress(psycopg.errors.SerializationFailure):
            return connection.execute(statement)
    return connection.execute(statement)


def _drop_all_but(connection: psycopg.Connection[Any], kept: set[int]) -> None:
    for kind in _ORDER:
        # Looked up anew for each kind: dropping one thing takes others with it. The youngest first: a domain may be
        # made of an older one.
        for found, identity, name in sorted(_objects(connection), key=itemgetter(1), reverse=True):
            if found == kind and identity not in kept:
                if kind == "ROLE":
                    for (arn,) in _run(connection, (_TRUST % identity).encode()).fetchall():
                        _run(connection, f"AWS IAM REVOKE {name} FROM {arn}".encode())
                    _run(connection, f"GRANT {name} TO admin".encode())
                    _run(connection, f"DROP OWNED BY {name}".encode())
                    _run(connection, f"DROP ROLE {name}".encode())
                    continue
                cascade = "" if kind == "DOMAIN" else " CASCADE"  # DSQL refuses DROP DOMAIN ... CASCADE
                _run(connection, f"DROP {kind} IF EXISTS {name}{cascade}".encode())
