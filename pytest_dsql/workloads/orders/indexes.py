"""Builds the secondary indexes after the load, and waits until they can be used."""

from __future__ import annotations

import time
from typing import Final

from pytest_dsql.errors import DataLoadFailed
from pytest_dsql.workloads.identity import Dialect
from pytest_dsql.workloads.orders.schema import INDEXES, SCHEMA
from pytest_dsql.workloads.sessions import Session

#: DSQL took 12 minutes for 11 million rows (published experiment, Seoul, 2026-09).
_BUILD_S: Final = 3600.0
_POLL_S: Final = 0.05
_SLOW_POLL_S: Final = 1.0


def build_indexes(session: Session, dialect: Dialect) -> None:
    """Create the indexes that are missing, and return when all of them are valid.

    On DSQL they are built by asynchronous jobs; `pg_indexes` shows an index before it is built, so
    `pg_index.indisvalid` decides. Raises DataLoadFailed when a build failed or takes more than an hour.
    """
    jobs: dict[str, str] = {}
    for name, (table, columns) in INDEXES.items():
        mode = "ASYNC " if dialect == "dsql" else ""
        statement = f"CREATE INDEX {mode}IF NOT EXISTS {name} ON {SCHEMA}.{table} ({columns})"
        for (job,) in session.define(statement):
            jobs[name] = job
    started = time.monotonic()
    for name in INDEXES:
        _wait_until_valid(session, name, jobs.get(name), started)


def _wait_until_valid(session: Session, name: str, job: str | None, started: float) -> None:
    query = (
        "SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
    )
    while True:
        rows = session.query(query, (SCHEMA, name))
        if not rows:
            raise DataLoadFailed(f"index {SCHEMA}.{name} was dropped while it was being built; load again")
        if rows[0][0]:
            return
        waited = time.monotonic() - started
        if waited > _BUILD_S:
            raise DataLoadFailed(f"index {SCHEMA}.{name} is still not valid after {_BUILD_S:.0f} s; load again to wait")
        if waited > _SLOW_POLL_S and job is not None:
            status = session.query("SELECT status, details FROM sys.jobs WHERE job_id = %s", (job,))
            if status and status[0][0] == "failed":
                session.execute(f"DROP INDEX IF EXISTS {SCHEMA}.{name}")  # so that the next load builds it anew
                raise DataLoadFailed(f"DSQL could not build index {SCHEMA}.{name} (job {job}): {status[0][1]}")
        time.sleep(_POLL_S if waited < _SLOW_POLL_S else _SLOW_POLL_S)
