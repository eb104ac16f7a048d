"""Leaves the embedded engine's database as a test found it: what the test created is dropped after it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.errors import DsqlError

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.targets.target import Target

#: How long dropping may wait for a connection that still holds what is to be dropped, in seconds.
_PATIENCE_S: Final = 10.0

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
"""
_ORDER: Final = ("VIEW", "TABLE", "SEQUENCE", "FUNCTION", "DOMAIN", "SCHEMA")


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
    with target.connect() as connection, _patience(connection):
        _drop_all_but(connection, before)


@contextmanager
def _patience(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cut the connection when the block takes too long: no other time limit can be set (DSQL refuses lock_timeout)."""
    import psycopg

    cut = threading.Event()

    def shut() -> None:
        cut.set()
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_PATIENCE_S, shut)
    timer.start()
    try:
        yield
    except psycopg.OperationalError:
        if not cut.is_set():
            raise
        raise DsqlError(
            f"what the test created could not be dropped within {_PATIENCE_S:g} s: a connection that it left open is "
            "in a transaction; close it, or commit"
        ) from None
    finally:
        timer.cancel()


def _objects(connection: psycopg.Connection[Any]) -> list[tuple[str, int, str]]:
    return connection.execute(_OBJECTS).fetchall()


def _drop_all_but(connection: psycopg.Connection[Any], kept: set[int]) -> None:
    for kind in _ORDER:
        # Looked up anew for each kind: dropping one thing takes others with it.
        for found, identity, name in _objects(connection):
            if found == kind and identity not in kept:
                cascade = "" if kind == "DOMAIN" else " CASCADE"  # DSQL refuses DROP DOMAIN ... CASCADE
                connection.execute(f"DROP {kind} IF EXISTS {name}{cascade}".encode())
