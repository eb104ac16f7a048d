"""What must hold after a cell of transfers: no money appears or disappears, and every transfer happened once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.transaction import CellRun, Tally
from pytest_dsql.workloads.receipts import compare_with_tally, operation_bounds
from pytest_dsql.workloads.sessions import Session
from pytest_dsql.workloads.transfers.schema import SCHEMA

if TYPE_CHECKING:
    import psycopg

_BALANCES: Final = f"SELECT id, balance FROM {SCHEMA}.accounts"

_CHANGES: Final = f"""
    SELECT account, sum(change) FROM (
        SELECT debit AS account, -amount AS change FROM {SCHEMA}.transfers WHERE id >= %(first)s AND id < %(end)s
        UNION ALL
        SELECT credit, amount FROM {SCHEMA}.transfers WHERE id >= %(first)s AND id < %(end)s
    ) AS changes GROUP BY account"""

_RECEIPTS: Final = f"""
    SELECT count(*), count(DISTINCT transfer) FROM {SCHEMA}.operation_receipts
    WHERE operation_id >= %(operations)s AND operation_id < %(operations_end)s"""

_UNMATCHED: Final = f"""
    SELECT count(*) FILTER (WHERE t.id IS NULL), count(*) FILTER (WHERE r.transfer IS NULL)
    FROM (SELECT transfer FROM {SCHEMA}.operation_receipts
          WHERE operation_id >= %(operations)s AND operation_id < %(operations_end)s) AS r
    FULL JOIN (SELECT id FROM {SCHEMA}.transfers WHERE id >= %(first)s AND id < %(end)s) AS t ON t.id = r.transfer"""


def balances(session: Session, accounts: int) -> array[int]:
    """Return the balance of every account, by id."""
    return _by_account(session.query(_BALANCES), accounts)


def check(session: Session, run: CellRun, tally: Tally) -> dict[str, int]:
    """Count the violations of every invariant over the rows of `run`.

    `no_doubled_effect` is left out when the tally is incomplete: a receipt that nobody counted may be of a request
    whose generator process died.
    """
    ids = run.id_range()
    bounds: dict[str, Any] = {"first": ids.start, "end": ids.stop, **operation_bounds(run.number)}
    return session.run(partial(_check, run, tally, bounds))


def _check(run: CellRun, tally: Tally, bounds: dict[str, Any], connection: psycopg.Connection[Any]) -> dict[str, int]:
    # One snapshot: a COMMIT that was under way when its connection was given up may still arrive.
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    expected = array("q", run.snapshot)
    total = sum(expected)
    for account, change in connection.execute(_CHANGES, bounds):
        expected[account] += int(change)
    now = _by_account(connection.execute(_BALANCES), len(expected))
    receipts, transfers = _row(connection.execute(_RECEIPTS, bounds))
    without_transfer, without_receipt = _row(connection.execute(_UNMATCHED, bounds))
    connection.execute("COMMIT")
    lost, doubled = compare_with_tally({"transfer": receipts}, tally, ("transfer",))
    violations = {
        "balance_never_negative": sum(1 for balance in now if balance < 0),
        "balances_follow_transfers": sum(1 for was, is_now in zip(expected, now, strict=True) if was != is_now),
        "money_conserved": int(sum(now) != total),
        "transfer_has_one_receipt": without_receipt + (receipts - transfers),
        "receipt_has_its_transfer": without_transfer,
        "no_lost_commit": lost,
    }
    if tally.complete:
        violations["no_doubled_effect"] = doubled
    return violations


def _row(cursor: psycopg.Cursor[Any]) -> tuple[int, int]:
    row = cursor.fetchone()
    assert row is not None, "an aggregate has a row"
    return int(row[0]), int(row[1])


def _by_account(rows: Iterable[tuple[Any, ...]], accounts: int) -> array[int]:
    found = array("q", bytes(8 * accounts))
    for account, balance in rows:
        found[account] = balance
    return found
