"""Whose schema is it: the identity row by which workloads tell a schema of ours from somebody else's.

A name proves nothing. A schema is ours when its table `identity` holds a row that says so; without that row nothing in
it is read as data, written or dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from pytest_dsql.errors import ForeignSchema, UsageError

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.workloads.sessions import Session

PRODUCT: Final = "pytest-dsql"
State: TypeAlias = Literal["loading", "loaded"]
Dialect: TypeAlias = Literal["dsql", "postgresql"]

#: How long to wait for the identity row of a schema that somebody is making just now.
_CREATION_S: Final = 2.0


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """What a schema of ours says about itself."""

    schema: str
    workload: str
    version: int  #: of the tables' meaning
    scale: str  #: name and sizes
    seed: int


def claim_schema(session: Session, identity: Identity, *, dialect: Dialect) -> State:
    """Make the schema with its identity row, or verify that what is there is ours and the same; return its state.

    Safe to repeat, and for several processes at once. Raises as `schema_state` does.
    """
    state = schema_state(session, identity)
    if state is None:
        _create(session, identity, dialect)
        state = schema_state(session, identity)
    if state is None:
        raise ForeignSchema(f"schema {identity.schema} disappeared while it was being made")
    return state


def schema_state(session: Session, identity: Identity) -> State | None:
    """Return the state of the schema, None when there is no such schema.

    Raises ForeignSchema when it exists without our identity row or holds another workload, UsageError when it holds
    another scale, seed or version of ours.
    """
    schema = identity.schema
    if not _schema_exists(session, schema):
        return None
    workload, version, scale, seed, state = _wait_for_row(session, schema)
    if workload != identity.workload:
        raise ForeignSchema(f"schema {schema} holds the workload {workload!r}, not {identity.workload!r}")
    if (version, scale, seed) != (identity.version, identity.scale, identity.seed):
        raise UsageError(
            f"schema {schema} holds the {workload} data of scale {scale}, seed {seed}, version {version}; wanted: "
            f"scale {identity.scale}, seed {identity.seed}, version {identity.version}. Measure what is there "
            f"(--dsql-scale {scale.partition(' ')[0]} --dsql-seed {seed}) or remove it: DROP SCHEMA {schema} CASCADE"
        )
    return "loaded" if state == "loaded" else "loading"


def mark_loaded(session: Session, identity: Identity) -> None:
    """Note that every row of the design has landed."""
    session.execute(f"UPDATE {identity.schema}.identity SET state = 'loaded' WHERE product = %s", (PRODUCT,))


def remove_schema(session: Session, schema: str, workload: str, tables: Sequence[str]) -> bool:
    """Drop the schema with `tables` (children first) and the identity row; return False when there is no such schema.

    Raises ForeignSchema when it is not ours, or holds anything besides our tables; nothing is touched then. One
    statement per transaction, the identity row last, so that an interrupted removal can be repeated.
    """
    if not _schema_exists(session, schema):
        return False
    there, *_ = _wait_for_row(session, schema)
    if there != workload:
        raise ForeignSchema(f"schema {schema} holds the workload {there!r}, not {workload!r}; nothing was dropped")
    others = sorted(set(_relations(session, schema)) - {*tables, "identity"})
    if others:
        raise ForeignSchema(f"schema {schema} also holds {', '.join(others)}, not ours: move it away first")
    for table in (*tables, "identity"):
        session.execute(f"DROP TABLE IF EXISTS {schema}.{table}")
    session.execute(f"DROP SCHEMA IF EXISTS {schema}")
    return True


def _create(session: Session, identity: Identity, dialect: Dialect) -> None:
    import psycopg

    schema = identity.schema
    row = (PRODUCT, identity.workload, identity.version, identity.scale, identity.seed)
    create_schema = f"CREATE SCHEMA {schema}"
    create_table = (
        f"CREATE TABLE IF NOT EXISTS {schema}.identity (product text PRIMARY KEY, workload text NOT NULL, "
        "schema_version bigint NOT NULL, scale text NOT NULL, seed bigint NOT NULL, state text NOT NULL, "
        "created timestamptz NOT NULL)"
    )
    insert_row = (
        f"INSERT INTO {schema}.identity VALUES (%s, %s, %s, %s, %s, 'loading', now()) ON CONFLICT (product) DO NOTHING"
    )

    def at_once(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            connection.execute(create_schema)
            connection.execute(create_table)
            connection.execute(insert_row, row)

    try:
        if dialect == "postgresql":
            session.run(at_once)
        else:
            # DSQL takes one DDL statement per transaction, and no rows beside it; and the statement after one may fail
            # with OC001, so each is repeated by itself.
            session.execute(create_schema)
            session.execute(create_table)
            session.execute(insert_row, row)
    except (psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation):
        return  # another process was faster; its row is read next


def _wait_for_row(session: Session, schema: str) -> tuple[str, int, str, int, str]:
    """Return (workload, version, scale, seed, state) of the identity row, or raise ForeignSchema."""
    import time

    deadline = time.monotonic() + _CREATION_S
    while True:
        row = _row(session, schema)
        if row is not None:
            return row
        there = _relations(session, schema)
        if set(there) - {"identity"}:
            raise ForeignSchema(
                f"schema {schema} exists without the identity row of {PRODUCT}, so it is somebody else's "
                f"(it holds {', '.join(sorted(there))}); it was not touched. Rename it, or use another database"
            )
        # Empty, or with an empty identity table: on DSQL, making the three takes three transactions, and another
        # process may be between them.
        if time.monotonic() > deadline:
            raise ForeignSchema(
                f"schema {schema} exists without the identity row of {PRODUCT}; it was not touched. It holds nothing "
                f"of ours: if it is the rest of an interrupted run, remove it: DROP SCHEMA {schema} CASCADE"
            )
        time.sleep(0.1)


def _row(session: Session, schema: str) -> tuple[str, int, str, int, str] | None:
    import psycopg

    query = f"SELECT workload, schema_version, scale, seed, state FROM {schema}.identity WHERE product = %s"
    try:
        rows = session.query(query, (PRODUCT,))
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.DataError):
        return None  # no table of that name, or one that we did not make
    except psycopg.errors.InsufficientPrivilege as error:
        raise ForeignSchema(f"schema {schema} exists and this role may not read its identity row: {error}") from error
    return (rows[0][0], rows[0][1], rows[0][2], rows[0][3], rows[0][4]) if rows else None


def _schema_exists(session: Session, schema: str) -> bool:
    return bool(session.query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)))


def _relations(session: Session, schema: str) -> list[str]:
    """Return the names of tables, views and sequences in the schema (not of indexes)."""
    query = (
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind NOT IN ('i', 'I', 't', 'c')"
    )
    return [name for (name,) in session.query(query, (schema,))]
