"""Runs of cells: each claims a number that no other run in the same database has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_dsql.workloads.sessions import Session

if TYPE_CHECKING:
    import psycopg


def claim_run(session: Session, schema: str, cell: str) -> int:
    """Return a new number, noted in the table `cell_runs` (number, cell, created) of a workload's schema."""
    import psycopg

    # The number is a key: of two processes that saw the same last one, one fails, and looks again.
    def claim(connection: psycopg.Connection[Any]) -> int | None:
        try:
            row = connection.execute(
                f"INSERT INTO {schema}.cell_runs (number, cell, created) "
                f"SELECT coalesce(max(number), 0) + 1, %s, now() FROM {schema}.cell_runs RETURNING number",
                (cell,),
            ).fetchone()
        except psycopg.errors.UniqueViolation:
            return None
        assert row is not None, "an aggregate has a row"
        return int(row[0])

    while True:
        number = session.run(claim)
        if number is not None:
            return number
