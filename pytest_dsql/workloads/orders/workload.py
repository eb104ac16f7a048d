"""The order workload of E002: what a mix needs around its cells, and what `dsql_orders` hands out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import UsageError
from pytest_dsql.transaction import CellRun, Mix, Tally
from pytest_dsql.workloads.identity import Dialect, Identity, remove_schema, schema_state
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.orders import pipelined
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.invariants import check, stock_snapshot
from pytest_dsql.workloads.orders.loader import (
    Connect,
    LoadReport,
    land,
    landed_chunks,
    load,
    reserve_chunks,
)
from pytest_dsql.workloads.orders.scales import OrdersScale, scale_named
from pytest_dsql.workloads.orders.schema import SCHEMA, TABLES, VERSION
from pytest_dsql.workloads.orders.transactions import RECEIPT, order_cancel, order_create, order_history, product_read
from pytest_dsql.workloads.receipts import operation_prefix
from pytest_dsql.workloads.sessions import Session

if TYPE_CHECKING:
    import psycopg

#: The published experiment's mix.
SHARES: Final = {product_read: 0.4, order_history: 0.3, order_create: 0.2, order_cancel: 0.1}

#: Set-aside orders beyond the expected number of cancels: shares are drawn at random, slots differ in speed.
_SPARE: Final = 1.25
_SPARE_PER_SLOT: Final = 16
_IN_FLIGHT_PER_SLOT: Final = 4

_FEW_WORKERS: Final = 4
_MANY_WORKERS: Final = 16
#: From here on a load takes minutes: a fresh DSQL table takes a few thousand rows/s from each connection.
_MANY_ROWS: Final = 5_000_000


@final
class Orders:
    """The order workload at one scale; implements `pytest_dsql.transaction.CellWorkload`.

    `scale` is the name of a scale or an OrdersScale; `seed` decides the loaded rows. Everything is in the schema
    `pytest_dsql_orders`. One cell at a time may run on one schema. Raises UsageError for an unknown scale or a seed
    that is no number from 0 to 2**63 - 1.
    """

    __slots__ = ("_data", "_identity", "scale", "seed")

    def __init__(self, scale: str | OrdersScale = "quick", *, seed: int = 1) -> None:
        if not 0 <= seed < 1 << 63:
            raise UsageError(f"the seed must be a number from 0 to 2**63 - 1, not {seed}")
        self.scale: Final = scale_named(scale) if isinstance(scale, str) else scale  #: what transactions get
        self.seed: Final = seed
        self._data: Final = OrdersData(self.scale, seed)
        self._identity: Final = Identity(SCHEMA, "orders", VERSION, self.scale.describe(), seed)

    def __repr__(self) -> str:
        return f"Orders({self.scale.name!r}, seed={self.seed})"

    @property
    def mix(self) -> Mix:
        """The published mix of the four transactions."""
        return Mix(SHARES, workload=self)

    @property
    def pipelined_mix(self) -> Mix:
        """The same mix in as few round trips as its transactions allow; for cells with `pipeline=True`."""
        return Mix(pipelined.SHARES, workload=self)

    def load(
        self,
        connect: Connect,
        *,
        dialect: Dialect,
        workers: int | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> LoadReport:
        """Load what is missing, build the indexes and check the counts; returns at once when all of it is there.

        `connect` opens a new psycopg connection in autocommit, in any thread. `workers` connections load at a time (by
        default 4, or 16 for a scale of millions). `progress` is called in the calling thread, about ten times a second.
        Killed at any point, the next load goes on from there.

        Raises ForeignSchema when the schema is not ours, UsageError when it holds another scale or seed,
        ConnectionFailed and DataLoadFailed for what trying again does not cure.
        """
        workers = workers or self._workers
        return load(connect, self._identity, self._data, dialect=dialect, workers=workers, progress=progress)

    def remove(self, connect: Connect) -> bool:
        """Drop the schema with all its rows; return False when there was none.

        Raises ForeignSchema, touching nothing, when it lacks our identity row or holds a table that is not ours.
        """
        with Session(connect) as session:
            return remove_schema(session, SCHEMA, self._identity.workload, tuple(reversed(TABLES)))

    def begin_cell(
        self,
        connect: Connect,
        *,
        cell: str,
        slots: int,
        requests_hint: int,
        shares: Mapping[str, float] | None = None,
    ) -> CellRun:
        """Claim a run number and set-aside orders for one run of a cell, and note every product's stock.

        `requests_hint` is how many requests the run may make at most, `shares` the share of each transaction (by
        default the published mix): together they say how many orders are set aside for `order_cancel`. When the loaded
        ones run short, more are loaded. Raises UsageError when the data was not loaded.
        """
        share = SHARES[order_cancel] if shares is None else shares.get(order_cancel.name, 0.0)
        wanted = math.ceil(requests_hint * share * _SPARE) + _SPARE_PER_SLOT * slots if share else 0
        with Session(connect) as session:
            if schema_state(session, self._identity) != "loaded":
                raise UsageError(f"the order data is not loaded (schema {SCHEMA}): load it before measuring a cell")
            number, first = self._claim(session, cell, wanted)
            self._set_aside(session, connect, first + wanted)
            return CellRun(
                number=number,
                operation_prefix=operation_prefix(number),
                slots=slots,
                pools={"cancellable": range(first, first + wanted)},
                snapshot=stock_snapshot(session, self.scale.products),
                receipt_sql=RECEIPT,
            )

    def check_cell(self, connect: Connect, run: CellRun, tally: Tally) -> dict[str, int]:
        """Count the violations of every invariant over the rows of this run, as `invariants.check` does.

        Set-aside orders that the run did not touch go back to the reserve.
        """
        with Session(connect) as session:
            findings = check(session, run, tally)
            pool = run.pools["cancellable"]
            used_to = pool.start if findings.used_to is None else findings.used_to + 1
            # Behind the last one that was touched, orders may be on their way: of COMMITs whose answer nobody awaited.
            used_to = min(used_to + _IN_FLIGHT_PER_SLOT * run.slots, pool.stop)
            session.execute(f"UPDATE {SCHEMA}.cell_runs SET reserved_to = %s WHERE number = %s", (used_to, run.number))
        return findings.violations

    @property
    def _workers(self) -> int:
        return _MANY_WORKERS if self.scale.total_rows >= _MANY_ROWS else _FEW_WORKERS

    def _claim(self, session: Session, cell: str, orders: int) -> tuple[int, int]:
        """Return a new run number and the first of the set-aside orders that belong to it."""
        import psycopg

        # Number and orders come from one snapshot, and the number is a key: of two processes that saw the same state
        # one fails, and looks again.
        def transaction(connection: psycopg.Connection[Any]) -> tuple[int, int] | None:
            try:
                with connection.transaction():
                    row = connection.execute(
                        f"SELECT coalesce(max(number), 0) + 1, coalesce(max(reserved_to), %s) FROM {SCHEMA}.cell_runs",
                        (self.scale.first_set_aside,),
                    ).fetchone()
                    assert row is not None
                    number, first = row
                    connection.execute(
                        f"INSERT INTO {SCHEMA}.cell_runs (number, cell, reserved_from, reserved_to, created) "
                        "VALUES (%s, %s, %s, %s, now())",
                        (number, cell, first, first + orders),
                    )
                    return number, first
            except psycopg.errors.UniqueViolation:
                return None

        while True:
            claimed = session.run(transaction)
            if claimed is not None:
                return claimed

    def _set_aside(self, session: Session, connect: Connect, end: int) -> None:
        """See that the orders before `end` are there: whole chunks beyond the design's are loaded as needed."""
        if end <= self.scale.orders:
            return
        landed = landed_chunks(session)
        beyond = reserve_chunks(self.scale, end)
        land(
            connect,
            self._data,
            (chunk for chunk in beyond if (chunk.part, chunk.number) not in landed),
            workers=self._workers,
        )
