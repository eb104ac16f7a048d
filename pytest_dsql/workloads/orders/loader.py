"""Loads the order data: in parallel, in chunks that land whole or not at all, resuming where a load stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from pytest_dsql.errors import DataLoadFailed
from pytest_dsql.masking import mask
from pytest_dsql.workloads.identity import Dialect, Identity, claim_schema, mark_loaded
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.indexes import build_indexes
from pytest_dsql.workloads.orders.scales import ORDERS_PER_BLOCK, OrdersScale
from pytest_dsql.workloads.orders.schema import SCHEMA, TABLES
from pytest_dsql.workloads.sessions import Session, Stopped

if TYPE_CHECKING:
    import psycopg

Connect: TypeAlias = "Callable[[], psycopg.Connection[Any]]"

#: DSQL allows 3,000 modified rows per transaction (AWS user guide, "Quotas and limits in Aurora DSQL"), our own row
#: about the chunk included; 10 MiB are ten times what such a chunk weighs.
_ROWS_PER_CHUNK: Final = 2_500
#: An order brings its charge and 2.5 lines.
ORDERS_PER_CHUNK: Final = 600
assert ORDERS_PER_CHUNK % ORDERS_PER_BLOCK == 0

#: How long chunks in hand may take after an interrupt or a failure.
_PATIENCE_S: Final = 10.0
_PROGRESS_S: Final = 0.1
#: Counting is sliced so that no query comes near the 300 s that DSQL gives a transaction.
_COUNT_SLICE: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did."""

    rows: int  #: landed by this load
    total_rows: int  #: of the design
    elapsed_s: float
    retries: int  #: chunks begun again after a conflict, an outage or a lost connection
    already_loaded: bool  #: nothing was left to do


@final
@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that land in one transaction; `part` and `number` are its name in `load_chunks`."""

    part: str
    number: int
    ids: range
    rows: int


def load(
    connect: Connect,
    identity: Identity,
    data: OrdersData,
    *,
    dialect: Dialect,
    workers: int,
    progress: Callable[[LoadProgress], None] | None,
) -> LoadReport:
    """Bring the schema from whatever state it is in to loaded; returns at once when it is.

    Raises ForeignSchema, UsageError (other data of ours is there), ConnectionFailed, and DataLoadFailed for whatever
    trying again does not cure.
    """
    import psycopg

    try:
        return _load(connect, identity, data, dialect=dialect, workers=workers, progress=progress)
    except psycopg.Error as error:
        reason, *_details = mask(str(error)).splitlines()
        raise DataLoadFailed(f"loading into schema {SCHEMA} failed: {reason}") from error


def _load(
    connect: Connect,
    identity: Identity,
    data: OrdersData,
    *,
    dialect: Dialect,
    workers: int,
    progress: Callable[[LoadProgress], None] | None,
) -> LoadReport:
    started = time.monotonic()
    scale = data.scale

    rows = 0

    def report(step: str, more: int = 0) -> None:
        if progress is not None:
            progress(LoadProgress(rows + more, scale.total_rows, time.monotonic() - started, step))

    with Session(connect) as session:
        if claim_schema(session, identity, dialect=dialect) == "loaded":
            return LoadReport(0, scale.total_rows, time.monotonic() - started, 0, already_loaded=True)
        for statement in TABLES.values():
            session.define(statement)
        landed = landed_chunks(session)
        before = sum(chunk.rows for phase in _phases(scale) for chunk in phase if _name(chunk) in landed)
        rows = before
        retries = 0
        for phase in _phases(scale):
            missing = (chunk for chunk in phase if _name(chunk) not in landed)
            done, again = land(connect, data, missing, workers=workers, report=partial(report, "rows"))
            rows += done
            retries += again
        report("indexes")
        build_indexes(session, dialect)
        report("checks")
        # PostgreSQL would clean up after the load by itself, in the middle of a cell; DSQL has no VACUUM.
        statistics = "ANALYZE" if dialect == "dsql" else "VACUUM (ANALYZE)"
        for table in TABLES:
            session.execute(f"{statistics} {SCHEMA}.{table}")
        _check_counts(session, scale)
        mark_loaded(session, identity)
        retries += session.retries
    return LoadReport(rows - before, scale.total_rows, time.monotonic() - started, retries, already_loaded=False)


def _design_chunks(scale: OrdersScale) -> Iterator[Chunk]:
    """Cut the orders of the design into chunks."""
    for number, first in enumerate(range(0, scale.orders, ORDERS_PER_CHUNK)):
        orders = range(first, min(first + ORDERS_PER_CHUNK, scale.orders))
        yield Chunk("orders", number, orders, len(orders) * 9 // 2)


def reserve_chunks(scale: OrdersScale, end: int) -> Iterator[Chunk]:
    """Cut the orders beyond the design into whole chunks, as many as it takes to have every order before `end`."""
    for number, first in enumerate(range(scale.orders, end, ORDERS_PER_CHUNK)):
        orders = range(first, first + ORDERS_PER_CHUNK)
        yield Chunk("reserve", number, orders, len(orders) * 9 // 2)


def landed_chunks(session: Session) -> set[tuple[str, int]]:
    """Return the (part, number) of the chunks that are there."""
    return {(part, number) for part, number in session.query(f"SELECT part, chunk FROM {SCHEMA}.load_chunks")}


def land(
    connect: Connect,
    data: OrdersData,
    chunks: Iterator[Chunk],
    *,
    workers: int,
    report: Callable[[int], None] | None = None,
) -> tuple[int, int]:
    """Land chunks over `workers` connections; return (rows landed, retries).

    Threads are enough: writing out a row takes 1 us of Python, while the database takes many times that with the
    interpreter's lock released. `report` is called in this thread with the rows so far.
    """
    crew = _Crew(connect, data, chunks)
    threads = [threading.Thread(target=crew.work, name=f"orders-loader-{n}", daemon=True) for n in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_PROGRESS_S)
                if report is not None:
                    report(crew.rows)
    finally:
        # After an interrupt the chunk in hand is finished or rolled back, and its connection closed; but a database
        # that says nothing more is not waited for.
        crew.stop.set()
        deadline = time.monotonic() + _PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    if crew.failure is not None:
        raise crew.failure
    return crew.rows, crew.retries


@final
class _Crew:
    """Threads that take chunks from one iterator until it is empty, one of them fails, or they are told to stop."""

    def __init__(self, connect: Connect, data: OrdersData, chunks: Iterator[Chunk]) -> None:
        self._connect = connect
        self._data = data
        self._chunks = chunks
        self._lock = threading.Lock()
        self.stop = threading.Event()
        self.rows = 0
        self.retries = 0
        self.failure: BaseException | None = None

    def work(self) -> None:
        session: Session | None = None
        try:
            while (chunk := self._next()) is not None:
                # A connection only for a thread that has work.
                session = session or Session(self._connect, stop=self.stop)
                _land_one(session, self._data, chunk)
                with self._lock:
                    self.rows += chunk.rows
        except Stopped:
            pass  # another thread failed or the load was interrupted; the chunk is rolled back
        except BaseException as error:
            with self._lock:
                self.failure = self.failure or error
            self.stop.set()
        finally:
            if session is not None:
                session.close()
                with self._lock:
                    self.retries += session.retries

    def _next(self) -> Chunk | None:
        with self._lock:
            return None if self.stop.is_set() else next(self._chunks, None)


def _land_one(session: Session, data: OrdersData, chunk: Chunk) -> None:
    """Write a chunk and the row that says it landed, in one transaction; a chunk that is there counts as landed."""
    import psycopg

    tables = _copies(data, chunk)

    def transaction(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            # First, so that two loaders of one chunk meet here and not at a thousand keys.
            connection.execute(
                f"INSERT INTO {SCHEMA}.load_chunks (part, chunk, rows) VALUES (%s, %s, %s)",
                (chunk.part, chunk.number, chunk.rows),
            )
            for target, text in tables:
                with connection.cursor().copy(f"COPY {SCHEMA}.{target} FROM STDIN") as copy:
                    copy.write(text)

    try:
        session.run(transaction)
    except psycopg.errors.UniqueViolation:
        # By another loader, or by an attempt of ours whose COMMIT arrived although its answer did not.
        query = f"SELECT 1 FROM {SCHEMA}.load_chunks WHERE part = %s AND chunk = %s"
        if not session.query(query, (chunk.part, chunk.number)):
            raise


def _copies(data: OrdersData, chunk: Chunk) -> Sequence[tuple[str, bytes]]:
    """Return (table with columns, COPY text) for each table of a chunk, parents first."""
    match chunk.part:
        case "tenants":
            return [("tenants (id, name)", data.tenants_text(chunk.ids))]
        case "customers":
            return [("customers (id, tenant, email, name, created)", data.customers_text(chunk.ids))]
        case "products":
            products, stock = data.products_text(chunk.ids)
            return [
                ("products (id, tenant, sku, name, description, price)", products),
                ("inventory (product, quantity, base_quantity)", stock),
            ]
        case _:
            orders, items, charges = data.orders_text(chunk.ids)
            return [
                ("orders (id, customer, status, total, created)", orders),
                ('order_items ("order", line, product, quantity, price)', items),
                ('ledger (id, "order", kind, amount, created)', charges),
            ]


def _phases(scale: OrdersScale) -> Iterator[Iterator[Chunk]]:
    """Yield the chunks of the design; a phase needs the rows of those before it.

    An order's lines and charge are in its own chunk: the orders they refer to are then rows of the same transaction,
    and nothing but complete orders is ever seen.
    """
    yield _chunks("tenants", scale.tenants, _ROWS_PER_CHUNK, 1)
    yield _alternate(
        _chunks("customers", scale.customers, _ROWS_PER_CHUNK, 1),
        _chunks("products", scale.products, _ROWS_PER_CHUNK // 2, 2),
    )
    yield _design_chunks(scale)


def _chunks(part: str, count: int, size: int, rows_per_id: int) -> Iterator[Chunk]:
    for number, first in enumerate(range(0, count, size)):
        ids = range(first, min(first + size, count))
        yield Chunk(part, number, ids, len(ids) * rows_per_id)


def _alternate(*streams: Iterator[Chunk]) -> Iterator[Chunk]:
    waiting = list(streams)
    while waiting:
        for stream in tuple(waiting):
            chunk = next(stream, None)
            if chunk is None:
                waiting.remove(stream)
            else:
                yield chunk


def _name(chunk: Chunk) -> tuple[str, int]:
    return chunk.part, chunk.number


def _check_counts(session: Session, scale: OrdersScale) -> None:
    """Compare what is there with the design, over the ids of the design."""
    expected = dict(scale.rows)
    found = dict.fromkeys(expected, 0)
    keys = {"inventory": "product", "order_items": '"order"'}
    ids = expected | {"order_items": scale.orders}
    for table in expected:
        key = keys.get(table, "id")
        for first in range(0, ids[table], _COUNT_SLICE):
            last = min(first + _COUNT_SLICE, ids[table])
            query = f"SELECT count(*) FROM {SCHEMA}.{table} WHERE {key} >= %s AND {key} < %s"
            found[table] += session.query(query, (first, last))[0][0]
    wrong = [f"{table} {found[table]} of {expected[table]}" for table in expected if found[table] != expected[table]]
    if wrong:
        raise DataLoadFailed(
            f"schema {SCHEMA} does not hold the rows of its design ({', '.join(wrong)}): rows were removed or added "
            f"behind our back; remove the schema and load again: DROP SCHEMA {SCHEMA} CASCADE"
        )
