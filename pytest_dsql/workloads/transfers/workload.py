"""The transfer workload: what a mix needs around its cells, and what `dsql_transfers` hands out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from pytest_dsql.errors import DataLoadFailed, UsageError
from pytest_dsql.masking import mask
from pytest_dsql.transaction import CellRun, Mix, Tally
from pytest_dsql.workloads.identity import (
    Dialect,
    Identity,
    claim_schema,
    mark_loaded,
    remove_schema,
    schema_state,
)
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.receipts import operation_prefix
from pytest_dsql.workloads.runs import claim_run
from pytest_dsql.workloads.sessions import Session
from pytest_dsql.workloads.transfers.invariants import balances, check
from pytest_dsql.workloads.transfers.schema import OPENING, SCHEMA, TABLES, VERSION, TransfersScale, scale_named
from pytest_dsql.workloads.transfers.transactions import RECEIPT, balance_read, transfer

if TYPE_CHECKING:
    import psycopg

Connect: TypeAlias = "Callable[[], psycopg.Connection[Any]]"

SHARES: Final = {balance_read: 0.2, transfer: 0.8}

#: DSQL allows 3,000 modified rows per transaction (AWS user guide, "Quotas and limits in Aurora DSQL").
_ROWS_AT_ONCE: Final = 2_500


@final
class Transfers:
    """The transfer workload at one scale; implements `pytest_dsql.transaction.CellWorkload`.

    `scale` is the name of a scale or a TransfersScale. Everything is in the schema `pytest_dsql_transfers`. One cell at
    a time may run on one schema. Raises UsageError for an unknown scale.
    """

    __slots__ = ("_identity", "scale")

    def __init__(self, scale: str | TransfersScale = "quick") -> None:
        self.scale: Final = scale_named(scale) if isinstance(scale, str) else scale  #: what transactions get
        self._identity: Final = Identity(SCHEMA, "transfers", VERSION, self.scale.describe(), seed=0)

    def __repr__(self) -> str:
        return f"Transfers({self.scale.name!r})"

    @property
    def mix(self) -> Mix:
        """Four transfers for each balance that is read."""
        return Mix(SHARES, workload=self)

    def load(
        self, connect: Connect, *, dialect: Dialect, progress: Callable[[LoadProgress], None] | None = None
    ) -> int:
        """Load the accounts that are missing, and return how many that were; safe to repeat after a kill.

        `connect` opens a new psycopg connection in autocommit; `progress` is called before each batch, and may raise to
        break the load off. Raises ForeignSchema when the schema is not ours,
        UsageError when it holds another scale, ConnectionFailed and DataLoadFailed for what trying again does not cure.
        """
        import psycopg

        try:
            with Session(connect) as session:
                return self._load(session, dialect, progress)
        except psycopg.Error as error:
            reason, *_details = mask(str(error)).splitlines()
            raise DataLoadFailed(f"loading into schema {SCHEMA} failed: {reason}") from error

    def _load(self, session: Session, dialect: Dialect, progress: Callable[[LoadProgress], None] | None) -> int:
        started = time.monotonic()
        if claim_schema(session, self._identity, dialect=dialect) == "loaded":
            return 0
        for statement in TABLES.values():
            session.define(statement)
        there = self._count(session)
        for first in range(0, self.scale.accounts, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, self.scale.accounts) - 1
            if progress is not None:
                progress(LoadProgress(first, self.scale.accounts, time.monotonic() - started, "rows"))
            session.execute(
                f"INSERT INTO {SCHEMA}.accounts (id, balance) SELECT id, %s FROM generate_series(%s::bigint, %s) AS id "
                "ON CONFLICT (id) DO NOTHING",
                (OPENING, first, last),
            )
        for table in TABLES:
            session.execute(f"ANALYZE {SCHEMA}.{table}")
        found = self._count(session)
        if found != self.scale.accounts:
            raise DataLoadFailed(
                f"schema {SCHEMA} holds {found:,} accounts and should hold {self.scale.accounts:,}: remove it and load "
                f"again: DROP SCHEMA {SCHEMA} CASCADE"
            )
        mark_loaded(session, self._identity)
        return found - there

    @staticmethod
    def _count(session: Session) -> int:
        return int(session.query(f"SELECT count(*) FROM {SCHEMA}.accounts")[0][0])

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
        requests_hint: int,  # noqa: ARG002 - transfers set nothing aside
        shares: Mapping[str, float] | None = None,  # noqa: ARG002
    ) -> CellRun:
        """Claim a run number for one run of a cell, and note every balance. Raises UsageError without loaded data."""
        with Session(connect) as session:
            if schema_state(session, self._identity) != "loaded":
                raise UsageError(f"the accounts are not loaded (schema {SCHEMA}): load them before measuring a cell")
            number = claim_run(session, SCHEMA, cell)
            return CellRun(
                number=number,
                operation_prefix=operation_prefix(number),
                slots=slots,
                snapshot=balances(session, self.scale.accounts),
                receipt_sql=RECEIPT,
            )

    def check_cell(self, connect: Connect, run: CellRun, tally: Tally) -> dict[str, int]:
        """Count the violations of every invariant over the rows of this run, as `invariants.check` does."""
        with Session(connect) as session:
            return check(session, run, tally)
