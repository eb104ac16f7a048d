"""What each transaction of a mix costs, by the target's own word: the DPU estimate below EXPLAIN ANALYZE VERBOSE.

AWS user guide, "Understanding DPUs in EXPLAIN ANALYZE": each statement's estimate comes without the minimums, which are
its transaction's. Nothing that is run here is committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import UsageError
from pytest_dsql.load.cost import Dpu
from pytest_dsql.load.statements import BEGIN, ROLLBACK
from pytest_dsql.transaction import Context

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.transaction import CellRun, Mix, Transaction

#: A transaction that reads or writes at all is charged at least so much for it (AWS user guide, "How billing works in
#: Aurora DSQL").
READ_MINIMUM: Final = 0.00375
WRITE_MINIMUM: Final = 0.05

_HEADING: Final = "Statement DPU Estimate:"
_LINE: Final = re.compile(r"\s*(Compute|Read|Write|Multi-?Region[ \w]*): +([0-9.]+) DPU.*", re.IGNORECASE)
_EXPLAINED: Final = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|VALUES|TABLE)\b", re.IGNORECASE)


def read_estimate(lines: Sequence[str]) -> Dpu | None:
    """Read the estimate at the end of a plan; None when there is none."""
    if _HEADING not in (line.strip() for line in lines):
        return None
    parts = {"compute": 0.0, "read": 0.0, "write": 0.0, "multi_region_write": 0.0}
    for line in lines:
        if found := _LINE.fullmatch(line):
            name = found[1].lower()
            parts[name if name in parts else "multi_region_write"] += float(found[2])
    return Dpu(**parts)


def with_minimums(statements: Sequence[Dpu]) -> Dpu:
    """Add up the statements of one transaction: what it is charged."""
    total = Dpu()
    for one in statements:
        total = total.plus(one)
    return Dpu(
        compute=total.compute,
        read=max(total.read, READ_MINIMUM) if total.read else 0.0,
        write=max(total.write, WRITE_MINIMUM) if total.write else 0.0,
        multi_region_write=max(total.multi_region_write, WRITE_MINIMUM) if total.multi_region_write else 0.0,
    )


def explain_mix(
    connection: psycopg.Connection[Any], mix: Mix, run: CellRun, *, seed: int, scale: Any, samples: int
) -> Mapping[str, Dpu]:
    """Return what each transaction of a mix costs, on the average of so many requests.

    Each request runs twice, both times rolled back: as it is, to learn its statements, and with every statement
    explained. `connection` is in autocommit. Raises UsageError on a target that doesn't tell.
    """
    ctx = Context(seed=seed, run=run, scale=scale)
    costs: dict[str, Dpu] = {}
    for transaction in mix:
        total = Dpu()
        for _ in range(samples):
            ctx.next_request()
            total = total.plus(with_minimums(_explained(connection, _statements(connection, transaction, ctx))))
        costs[transaction.name] = total.times(1 / samples)
    return costs


def figures_of(costs: Mapping[str, Dpu], samples: int) -> dict[str, Any]:
    """Return what the results file keeps of transactions' costs, in DPU."""
    figures: dict[str, Any] = {"samples": samples}
    for name, cost in costs.items():
        figures |= {f"{name}_dpu": round(cost.total, 6), f"{name}_read_dpu": round(cost.read, 6)}
        figures |= {f"{name}_write_dpu": round(cost.write, 6), f"{name}_compute_dpu": round(cost.compute, 6)}
    return figures


@final
@dataclass(frozen=True, slots=True)
class _Answer:
    """What a statement answered: `pytest_dsql.transaction.Result`."""

    rowcount: int
    rows: Sequence[tuple[Any, ...]]

    def one(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None


def _statements(
    connection: psycopg.Connection[Any], transaction: Transaction, ctx: Context
) -> list[tuple[str, Sequence[Any] | None]]:
    """Run a request, roll it back, and return what it sent."""
    sent: list[tuple[str, Sequence[Any] | None]] = []

    def answer(step: Any) -> _Answer:
        sql, values = (step, None) if isinstance(step, str) else step
        sent.append((sql, values))
        return _run(connection, sql, values)

    connection.execute(BEGIN)
    try:
        steps = transaction(ctx)
        value: Any = None
        while True:
            try:
                step = steps.send(value)
            except StopIteration:  # also with a business "no": it has cost what it took to find out
                return sent
            value = [answer(one) for one in step] if isinstance(step, list) else answer(step)
    finally:
        connection.execute(ROLLBACK)


def _explained(
    connection: psycopg.Connection[Any], statements: Sequence[tuple[str, Sequence[Any] | None]]
) -> list[Dpu]:
    """Run the statements again, each explained, and roll them back."""
    found: list[Dpu] = []
    connection.execute(BEGIN)
    try:
        for sql, values in statements:
            if not _EXPLAINED.match(sql):
                _run(connection, sql, values)
                continue
            plan = _run(connection, f"EXPLAIN ANALYZE VERBOSE {sql}", values)
            estimate = read_estimate([str(row[0]) for row in plan.rows])
            if estimate is None:
                raise UsageError("the target doesn't tell what statements cost: only Aurora DSQL and the engine do")
            found.append(estimate)
    finally:
        connection.execute(ROLLBACK)
    return found


def _run(connection: psycopg.Connection[Any], sql: str, values: Sequence[Any] | None) -> _Answer:
    import psycopg

    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(sql.encode(), values)
        rows = cursor.fetchall() if cursor.description else []
        return _Answer(max(cursor.rowcount, 0), rows)
