"""What must hold after a cell, checked over the rows of one run of it; each invariant counts its violations.

Facts about one order come from four tables; they are gathered by UNION ALL and GROUP BY instead of joins. So the time
taken does not depend on the planner's guess about rows that came after its statistics, and a row whose partner is
missing shows whichever side is missing. Ranges are cut into slices, which keeps every query far from DSQL's 300 s and
128 MiB (AWS user guide, "Quotas and limits in Aurora DSQL").
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.transaction import CellRun, Tally
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.receipts import compare_with_tally, operation_bounds
from pytest_dsql.workloads.sessions import Session

if TYPE_CHECKING:
    import psycopg

#: Orders per query. One of them takes about 100 bytes of memory in the database.
_SLICE: Final = 250_000

_STOCK_NOW: Final = f"SELECT product, quantity FROM {SCHEMA}.inventory ORDER BY product"

_UNITS_ORDERED: Final = f"""
    SELECT product, sum(quantity) FROM {SCHEMA}.order_items
    WHERE "order" >= %(first)s AND "order" < %(end)s GROUP BY product"""

_UNITS_RETURNED: Final = f"""
    SELECT i.product, sum(i.quantity)
    FROM {SCHEMA}.orders AS o JOIN {SCHEMA}.order_items AS i ON i."order" = o.id
    WHERE o.id >= %(first)s AND o.id < %(end)s AND o.status = 'cancelled' GROUP BY i.product"""

_RECEIPTS: Final = f"""
    SELECT kind, count(*), count(*) FILTER (WHERE reference_id < %(first)s OR reference_id >= %(end)s)
    FROM {SCHEMA}.operation_receipts
    WHERE operation_id >= %(operations)s AND operation_id < %(operations_end)s GROUP BY kind"""

#: One row per order that any table knows: how often it is there, and what each table says about it.
_FACTS: Final = f"""
    SELECT id, sum(orders) AS orders, sum(cancelled) AS cancelled, sum(total) AS total, sum(receipts) AS receipts,
           sum(lines) AS lines, sum(worth) AS worth, sum(charges) AS charges, sum(charged) AS charged,
           sum(refunds) AS refunds, sum(refunded) AS refunded
    FROM (
        SELECT id, 1 AS orders, CASE status WHEN 'cancelled' THEN 1 ELSE 0 END AS cancelled, total, 0 AS receipts,
               0 AS lines, 0::bigint AS worth, 0 AS charges, 0::bigint AS charged, 0 AS refunds, 0::bigint AS refunded
        FROM {SCHEMA}.orders WHERE id >= %(first)s AND id < %(end)s
        UNION ALL
        SELECT reference_id, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0 FROM {SCHEMA}.operation_receipts
        WHERE operation_id >= %(operations)s AND operation_id < %(operations_end)s AND kind = %(kind)s
              AND reference_id >= %(first)s AND reference_id < %(end)s
        UNION ALL
        SELECT "order", 0, 0, 0, 0, 1, quantity * price, 0, 0, 0, 0 FROM {SCHEMA}.order_items
        WHERE "order" >= %(first)s AND "order" < %(end)s
        UNION ALL
        SELECT "order", 0, 0, 0, 0, 0, 0,
               CASE kind WHEN 'charge' THEN 1 ELSE 0 END, CASE kind WHEN 'charge' THEN amount ELSE 0 END,
               CASE kind WHEN 'refund' THEN 1 ELSE 0 END, CASE kind WHEN 'refund' THEN amount ELSE 0 END
        FROM {SCHEMA}.ledger WHERE "order" >= %(first)s AND "order" < %(end)s
    ) AS facts GROUP BY id"""

_CREATED: Final = f"""
    SELECT count(*) FILTER (WHERE orders = 1 AND receipts <> 1),
           count(*) FILTER (WHERE orders = 0 AND receipts > 0),
           count(*) FILTER (WHERE orders = 1 AND (lines = 0 OR worth <> total)),
           count(*) FILTER (WHERE orders = 1 AND (charges <> 1 OR charged <> total OR refunds <> 0))
    FROM ({_FACTS}) AS per_order"""

_CANCELLED: Final = f"""
    SELECT count(*) FILTER (WHERE cancelled = 1 AND receipts <> 1),
           count(*) FILTER (WHERE cancelled = 0 AND receipts > 0),
           count(*) FILTER (WHERE cancelled = 1 AND (refunds <> 1 OR refunded <> total)
                                  OR cancelled = 0 AND refunds > 0),
           max(id) FILTER (WHERE cancelled = 1 OR receipts > 0 OR refunds > 0)
    FROM ({_FACTS}) AS per_order"""


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found."""

    #: invariant -> violations; every invariant that could be checked is there, 0 when it holds
    violations: dict[str, int]
    used_to: int | None  #: the highest set-aside order that the run touched, None when it touched none


def stock_snapshot(session: Session, products: int) -> array[int]:
    """Return the stock of every product, by id."""
    return _by_product(session.query(_STOCK_NOW), products)


def check(session: Session, run: CellRun, tally: Tally) -> Findings:
    """Count the violations of every invariant over the rows of `run`.

    `no_doubled_effect` is left out when the tally is incomplete: a receipt that nobody counted may be of a request
    whose generator process died.
    """
    created = run.id_range()
    pool = run.pools["cancellable"]
    operations = operation_bounds(run.number)
    creates = tally.committed.get("order_create", 0) + tally.ambiguous.get("order_create", 0)
    # Ids of a run are spread evenly over its range.
    slices = list(_slices(created, 1 + creates // _SLICE))
    pool_slices = list(_slices(pool, 1 + len(pool) // _SLICE))

    receipts: dict[str, int] = {}
    strays = 0
    bounds = {"first": created.start, "end": created.stop}
    for kind, count, outside in session.query(_RECEIPTS, bounds | operations):
        receipts[kind] = count
        strays += outside if kind == "order_create" else 0

    of_creates = [0, 0, 0, 0]
    for bounds in slices:
        row = session.query(_CREATED, bounds | operations | {"kind": "order_create"})[0]
        of_creates = [so_far + more for so_far, more in zip(of_creates, row, strict=True)]
    of_cancels = [0, 0, 0]
    used: list[int] = []
    for bounds in pool_slices:
        *counts, last = session.query(_CANCELLED, bounds | operations | {"kind": "order_cancel"})[0]
        of_cancels = [so_far + more for so_far, more in zip(of_cancels, counts, strict=True)]
        if last is not None:
            used.append(last)
    negative, unconserved = session.run(partial(_stock, run, slices, pool_slices))
    lost, doubled = compare_with_tally(receipts, tally, ("order_create", "order_cancel"))
    violations = {
        "stock_never_negative": negative,
        "stock_conserved": unconserved,
        "order_has_one_receipt": of_creates[0],
        "receipt_has_its_order": of_creates[1] + strays,
        "order_has_its_lines": of_creates[2],
        "order_charged_once": of_creates[3],
        "cancel_has_one_receipt": of_cancels[0],
        "receipt_has_its_cancel": of_cancels[1],
        "cancel_refunded_once": of_cancels[2],
        "no_lost_commit": lost,
    }
    if tally.complete:
        violations["no_doubled_effect"] = doubled
    return Findings(violations, max(used) if used else None)


def _stock(
    run: CellRun,
    created: Sequence[dict[str, int]],
    pool: Sequence[dict[str, int]],
    connection: psycopg.Connection[Any],
) -> tuple[int, int]:
    """Return (products whose stock is negative, products whose stock does not add up).

    All of it is read in one snapshot: a COMMIT that was under way when its connection was given up may still arrive.
    """
    expected = array("q", run.snapshot)
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    for bounds in created:
        for product, units in connection.execute(_UNITS_ORDERED, bounds):
            expected[product] -= units
    for bounds in pool:
        for product, units in connection.execute(_UNITS_RETURNED, bounds):
            expected[product] += units
    now = _by_product(connection.execute(_STOCK_NOW), len(expected))
    connection.execute("COMMIT")
    negative = sum(1 for quantity in now if quantity < 0)
    unconserved = sum(1 for was, quantity in zip(expected, now, strict=True) if was != quantity)
    return negative, unconserved


def _by_product(rows: Iterable[tuple[Any, ...]], products: int) -> array[int]:
    stock = array("q", bytes(8 * products))
    for product, quantity in rows:
        stock[product] = quantity
    return stock


def _slices(ids: range, count: int) -> Iterator[dict[str, int]]:
    """Cut a range of ids into `count` pieces: bounds for a query, the end excluded."""
    for n in range(count):
        first = ids.start + len(ids) * n // count
        end = ids.start + len(ids) * (n + 1) // count
        yield {"first": first, "end": end}
