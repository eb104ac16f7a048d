"""The insert workload: one table, single-statement transactions, as the published Lambda experiment ran them.

The row's text holds the operation's id, by which the rows of a cell can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from uuid import UUID

from pytest_dsql.errors import UsageError
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, Tally, transaction
from pytest_dsql.workloads.identity import Dialect, Identity, claim_schema, mark_loaded, remove_schema, schema_state
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.receipts import compare_with_tally, operation_bounds, operation_prefix
from pytest_dsql.workloads.runs import claim_run
from pytest_dsql.workloads.sessions import Session

if TYPE_CHECKING:
    import psycopg

Connect: TypeAlias = "Callable[[], psycopg.Connection[Any]]"

SCHEMA: Final = "pytest_dsql_inserts"
VERSION: Final = 1

TABLES: Final = {
    "rows": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.rows (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            data text,
            created_at timestamptz DEFAULT now()
        )""",
    "cell_runs": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.cell_runs (
            number bigint PRIMARY KEY,
            cell text NOT NULL,
            created timestamptz NOT NULL
        )""",
}

#: Rows that reads choose from. Their ids follow from their numbers.
LOADED: Final = 1_000

_ROWS_OF_RUN: Final = f"""
    SELECT count(*), count(DISTINCT data) FROM {SCHEMA}.rows
    WHERE data >= %(operations)s AND data < %(operations_end)s"""


@final
@dataclass(frozen=True, slots=True)
class InsertsScale:
    """What transactions see: how many rows there are to read."""

    rows: int = LOADED


def loaded_id(number: int) -> UUID:
    """Return the id of a loaded row; neighbours by number are none by id."""
    return UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) & ((1 << 128) - 1))


@transaction(kind="write", block=False)
def insert_row(ctx: Context) -> Steps:
    """Insert one row."""
    yield f"INSERT INTO {SCHEMA}.rows (data) VALUES ($1)", (ctx.operation_id,)
    return None


@transaction(kind="read", block=False)
def read_row(ctx: Context) -> Steps:
    """Read one row by its key."""
    yield f"SELECT data, created_at FROM {SCHEMA}.rows WHERE id = $1", (loaded_id(ctx.pick(ctx.scale.rows)),)
    return None


@final
class Inserts:
    """The insert workload; implements `pytest_dsql.transaction.CellWorkload`.

    `mix` holds inserts only; for reads, or both, make a `Mix` with `workload=` this.
    """

    __slots__ = ("_identity", "scale")

    def __init__(self) -> None:
        self.scale: Final = InsertsScale()  #: what transactions get
        self._identity: Final = Identity(SCHEMA, "inserts", VERSION, f"rows {LOADED}", seed=0)

    @property
    def mix(self) -> Mix:
        """Inserts only."""
        return Mix({insert_row: 1.0}, workload=self)

    def load(
        self,
        connect: Connect,
        *,
        dialect: Dialect,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        """Make the table and the rows to read; safe to repeat after a kill. Raises as the other workloads do.

        `progress` is called once, before the rows: they are one batch.
        """
        with Session(connect) as session:
            if claim_schema(session, self._identity, dialect=dialect) == "loaded":
                return
            for statement in TABLES.values():
                session.define(statement)
            if progress is not None:
                progress(LoadProgress(0, LOADED, 0.0, "rows"))
            session.execute(
                f"INSERT INTO {SCHEMA}.rows (id, data) SELECT id, 'loaded' FROM unnest(%s::uuid[]) AS id "
                "ON CONFLICT (id) DO NOTHING",
                ([loaded_id(number) for number in range(LOADED)],),
            )
            mark_loaded(session, self._identity)

    def remove(self, connect: Connect) -> bool:
        """Drop the schema with all its rows; return False when there was none. Raises ForeignSchema as `load` does."""
        with Session(connect) as session:
            return remove_schema(session, SCHEMA, self._identity.workload, tuple(reversed(TABLES)))

    def begin_cell(
        self,
        connect: Connect,
        *,
        cell: str,
        slots: int,
        requests_hint: int,  # noqa: ARG002 - inserts set nothing aside
        shares: Mapping[str, float] | None = None,  # noqa: ARG002
    ) -> CellRun:
        """Claim a run number for one run of a cell. Raises UsageError without the table."""
        with Session(connect) as session:
            if schema_state(session, self._identity) != "loaded":
                raise UsageError(f"the table is not there (schema {SCHEMA}): load it before measuring a cell")
            number = claim_run(session, SCHEMA, cell)
        return CellRun(number=number, operation_prefix=operation_prefix(number), slots=slots)

    def check_cell(self, connect: Connect, run: CellRun, tally: Tally) -> dict[str, int]:
        """Count lost and doubled rows of this run. An incomplete tally can't tell doubled ones."""
        with Session(connect) as session:
            rows, operations = session.query(_ROWS_OF_RUN, operation_bounds(run.number))[0]
        lost, doubled = compare_with_tally({insert_row.name: operations}, tally, (insert_row.name,))
        violations = {"no_lost_commit": lost, "row_inserted_once": rows - operations}
        if tally.complete:
            violations["no_doubled_effect"] = doubled
        return violations
