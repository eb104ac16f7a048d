"""How much work a selection of tests is, before anything has run: cells, seconds, attempts, connections, rows.

What a test will do is told by its fixtures, its parameters, its name and its plan. A test that says nothing of its size
counts as one cell of the plan's largest; one that measures side by side as the plan's main measurement; one that calls
functions as the plan's largest fleet, each number of them once.
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


def work_of(tests: Iterable[PlannedTest], plan: Plan, scale: str, *, targets: int = 1) -> Work:
    """Add up what the selected tests do on one of so many targets.

    Each cell counts at its first look: a cell that needs more evidence takes longer.
    """
    known = unit_costs()
    total = Work()
    loaded = False
    for test in tests:
        if _is_skipped(test, plan, targets):
            continue
        if _loads(test) and not loaded:
            loaded = True
            total += _loading(scale, known)
        if "dsql_side_by_side" in test.fixtures:
            total += _side_by_side(test, plan, known)
        elif "dsql_functions" in test.fixtures:
            total += _functions(plan, known)
        elif "dsql_load" in test.fixtures or "tasks" in test.parameters:
            total += _cells(test, plan, known)
    return total


def _is_skipped(test: PlannedTest, plan: Plan, targets: int) -> bool:
    """Whether it is one of the benchmarks that compare targets, and there is nothing to compare."""
    if targets > 1 or "dsql_side_by_side" not in test.fixtures:
        return False
    return "boundaries" in test.name or ("all_targets" in test.name and not plan.main.alone)


def _loads(test: PlannedTest) -> bool:
    """Whether it loads the order data: by a fixture, by itself, or by what a parameter names."""
    named = any(isinstance(value, str) and value == "orders" for value in test.parameters.values())
    return named or bool(test.fixtures & {"dsql_orders", "dsql_side_by_side"})


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
    if "pool" in parameters:
        pool = int(parameters["pool"])
        return sum(
            (
                _loop(_closed(min(int(tasks), pool), known), pool, plan.connection_warmup_s, plan.pool_window_s, known)
                for tasks in ([parameters["tasks"]] if "tasks" in parameters else plan.pool_tasks)
            ),
            Work(),
        )
    if "soak" in test.name or "hours" in test.name:
        rate, connections = min(plan.pilot_rates), plan.open_loop_connections
        return _loop(rate, connections, plan.warmup_s, plan.soak_s, known) if plan.soak_s is not None else Work()
    if "pilot_rate" in parameters:
        rate, connections = float(parameters["pilot_rate"]), plan.open_loop_connections
        return _loop(rate, connections, plan.pilot_warmup_s, plan.pilot_window_s, known)
    if "rate" in parameters:
        return _loop(float(parameters["rate"]), plan.open_loop_connections, plan.warmup_s, plan.window_s, known)
    if "rivals" in parameters:
        connections = int(parameters["rivals"])
        one = _loop(_closed(connections, known), connections, plan.warmup_s, plan.contention_window_s, known)
        return one + one + one + one  # two kinds of access, with and without retries
    connections = int(parameters.get("connections", max(plan.closed_loop_connections)))
    window_s = max(plan.window_s, plan.beside_window_s or 0.0) if "beside" in test.name else plan.window_s
    return _loop(_closed(connections, known), connections, plan.warmup_s, window_s, known)


def _side_by_side(test: PlannedTest, plan: Plan, known: UnitCosts) -> Work:
    """On one of the targets: what says its size, in every repeat; else the exploration, and the rates that it gives."""
    main = plan.main
    if "boundaries" in test.name or "capacity" in test.name:
        return _search(plan, known)
    if test.parameters.keys() & {"burst", "rate", "connections"}:
        return sum((_cells(test, plan, known) for _ in range(main.repeats)), Work())
    total = Work()
    rates = [_closed(connections, known) for connections in plan.closed_loop_connections]
    for connections, rate in zip(plan.closed_loop_connections, rates, strict=True):
        total += _loop(rate, connections, plan.warmup_s, plan.window_s, known)
    for share in main.shares:
        for _ in range(main.repeats):
            # The reference rate is what the slowest target carried: the most that a target can is taken.
            total += _loop(share * max(rates), plan.open_loop_connections, main.warmup_s, main.window_s, known)
    return total


def _functions(plan: Plan, known: UnitCosts) -> Work:
    """Each number of functions once, every operation of one of them over a new connection."""
    total = Work()
    for functions in plan.functions:
        rate = _closed(functions, known)
        total += _loop(rate, functions, plan.functions_warmup_s, plan.functions_window_s, known)
    return total + Work(connections=known.dsql_tps_per_connection * plan.functions_window_s)


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
