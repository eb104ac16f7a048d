"""How much work a selection of tests is, before anything has run: cells, seconds, attempts, connections, rows.

What a test will do is told by its parameters and its plan. A test that says nothing of its size counts as one cell of
the plan's largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from pytest_dsql.cost.unit_costs import UnitCosts, unit_costs

if TYPE_CHECKING:
    from pytest_dsql.experiment.plans import Plan


@final
@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test that was selected."""

    name: str  #: of the function
    fixtures: frozenset[str]
    parameters: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Work:
    """What a run does, as far as it can be known. Amounts add up."""

    cells: int = 0
    seconds: float = 0.0
    attempts: float = 0.0
    connections: float = 0.0
    rows: float = 0.0  #: loaded

    def __add__(self, other: Work) -> Work:
        return Work(
            self.cells + other.cells,
            self.seconds + other.seconds,
            self.attempts + other.attempts,
            self.connections + other.connections,
            self.rows + other.rows,
        )


def work_of(tests: Iterable[PlannedTest], plan: Plan, scale: str) -> Work:
    """Add up what the selected tests do, each cell at its first look: a cell that needs more evidence takes longer."""
    known = unit_costs()
    total = Work()
    loaded = False
    for test in tests:
        if "dsql_orders" in test.fixtures and not loaded:
            loaded = True
            total += _loading(scale, known)
        if "dsql_load" in test.fixtures:
            total += _cells(test, plan, known)
    return total


def _loading(scale: str, known: UnitCosts) -> Work:
    from pytest_dsql.workloads.orders.scales import scale_named

    rows = scale_named(scale).total_rows
    return Work(seconds=rows / known.loaded_rows_per_s, rows=rows)


def _cells(test: PlannedTest, plan: Plan, known: UnitCosts) -> Work:
    parameters = test.parameters
    if "burst" in parameters or "burst" in test.name:
        asked = int(parameters.get("burst", max(plan.bursts)))
        return Work(cells=1, seconds=asked / 100 + known.seconds_between_cells, connections=asked, attempts=asked)
    if "capacity" in test.name:
        return _search(plan, known)
    if "rate" in parameters:
        return _loop(float(parameters["rate"]), plan.open_loop_connections, plan.warmup_s, plan.window_s, known)
    if "rivals" in parameters:
        connections = int(parameters["rivals"])
        one = _loop(_closed(connections, known), connections, plan.warmup_s, plan.contention_window_s, known)
        return one + one + one + one  # two kinds of access, with and without retries
    connections = int(parameters.get("connections", max(plan.closed_loop_connections)))
    window_s = max(plan.window_s, plan.beside_window_s or 0.0) if "beside" in test.name else plan.window_s
    return _loop(_closed(connections, known), connections, plan.warmup_s, window_s, known)


def _closed(connections: int, known: UnitCosts) -> float:
    return min(connections * known.dsql_tps_per_connection, known.most_tps)


def _loop(rate: float, connections: int, warmup_s: float, window_s: float, known: UnitCosts) -> Work:
    seconds = warmup_s + window_s
    return Work(
        cells=1,
        seconds=seconds + known.seconds_between_cells,
        attempts=rate * seconds,
        connections=connections,
    )


def _search(plan: Plan, known: UnitCosts) -> Work:
    """A search up to the most that was ever published, each rate in every repeat; none where the plan has none."""
    how = plan.capacity
    if how is None:
        return Work()
    total = Work()
    rate = how.start
    while rate <= known.most_tps:
        for _ in range(how.repeats):
            total += _loop(rate, plan.open_loop_connections, plan.warmup_s, plan.window_s, known)
        rate *= how.growth
    return total
