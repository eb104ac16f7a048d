"""Capacity: the highest rate at which a target meets an SLO, how sure that is, and the way there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import Inconclusive, Invalid, SloMissed
from pytest_dsql.load.statistics import LatencySummary
from pytest_dsql.slo.verdict import Outcome

if TYPE_CHECKING:
    from pytest_dsql.experiment.search import Bracket, SearchPlan
    from pytest_dsql.load.cell import Cell
    from pytest_dsql.slo.objectives import Slo

#: Repeats of a rate from which on it is no longer provisional.
REPEATS: Final = 3

#: Bounds of what `capacity` opens by itself.
_FEWEST_CONNECTIONS: Final = 16
_MOST_CONNECTIONS: Final = 512


@final
@dataclass(frozen=True, slots=True)
class Point:
    """One cell on the curve from rates to latencies."""

    rate: float  #: offered, per second
    outcome: Outcome
    tps: float  #: committed, per second
    latency: Mapping[str, LatencySummary]  #: by transaction
    cell: str  #: its id in the results file

    @classmethod
    def of(cls, rate: float, outcome: Outcome, cell: Cell) -> Point:
        """Take what a cell measured."""
        return cls(rate, outcome, cell.tps, dict(cell.latency.items()), cell.id)


@final
@dataclass(frozen=True, slots=True)
class Capacity:
    """What a target carries inside an SLO, in requests per second."""

    target: str
    bracket: Bracket
    curve: Sequence[Point]  #: in order of the rate

    @property
    def rate(self) -> float | None:
        """Q: the highest rate that passed as often as was asked; None when none did."""
        return self.bracket.low

    @property
    def interval(self) -> tuple[float, float]:
        """The rates between which the capacity lies; without an upper one it is infinite."""
        low, high, limit = self.bracket.low, self.bracket.high, self.bracket.limit
        return low or 0.0, high if high is not None and limit == "database" else math.inf

    @property
    def at_least(self) -> bool:
        """Whether something else than the database ended the search, so that it may carry more."""
        return self.bracket.limit != "database"

    @property
    def provisional(self) -> bool:
        """Whether the rate passed fewer than three times."""
        return self.bracket.passes < REPEATS

    def assert_at_least(self, rate: float) -> None:
        """Pass when the target carries `rate` requests per second.

        Raises SloMissed, or Inconclusive or Invalid when it was not the database that ended the search below.
        """
        __tracebackhide__ = True
        if self.rate is not None and self.rate >= rate:
            return
        text = f"The capacity is {self.describe()}, not at least {rate:,.1f}/s.\n\n{self.table()}"
        match self.bracket.limit:
            case "generator":
                raise Invalid(text)
            case "database" if self.interval[1] <= rate:
                raise SloMissed(text)
            case _:
                raise Inconclusive(text)

    def describe(self) -> str:
        """What was found, for a sentence."""
        low, high = self.bracket.low, self.bracket.high
        if low is None:
            return {
                "database": f"below {high or 0:,.1f}/s",
                "generator": f"not known: the generator or its machine was the limit down to {high or 0:,.1f}/s",
                "undecided": f"not known: there was too little evidence down to {high or 0:,.1f}/s",
                "none": "not known: no rate was tried",
            }[self.bracket.limit]
        why = {
            "database": f"from {low:,.1f}/s to below {high or 0:,.1f}/s",
            "generator": f"at least {low:,.1f}/s (the generator or its machine was the limit at {high or 0:,.1f}/s)",
            "undecided": f"at least {low:,.1f}/s (too little evidence at {high or 0:,.1f}/s)",
            "none": f"at least {low:,.1f}/s (the highest rate that was tried)",
        }[self.bracket.limit]
        passed = self.bracket.passes
        tried = sum(trial.rate == low for trial in self.bracket.trials)
        times = f"{passed} of {tried} times" if tried > passed else f"{passed} time{'' if passed == 1 else 's'}"
        return f"{why}, {'provisional: ' if self.provisional else ''}passed {times}"

    def table(self) -> str:
        """The curve as text: one line per cell, the slowest transaction of each."""
        row = "{:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {}"
        lines = [row.format("rate/s", "tps", "p50 ms", "p95 ms", "p99 ms", "verdict")]
        for point in self.curve:
            slowest = max(point.latency.values(), key=lambda one: (one.p99_ms == one.p99_ms, one.p99_ms), default=None)
            figures = (math.nan,) * 3 if slowest is None else (slowest.p50_ms, slowest.p95_ms, slowest.p99_ms)
            lines.append(
                row.format(f"{point.rate:,.1f}", f"{point.tps:,.1f}", *(f"{one:.2f}" for one in figures), point.outcome)
            )
        return "\n".join(lines)

    def figures(self) -> dict[str, Any]:
        """What the results file keeps of it, beside the cells."""
        return {
            "target": self.target,
            "rate": self.rate,
            "below": self.bracket.high,
            "limit": self.bracket.limit,
            "passes": self.bracket.passes,
            "provisional": self.provisional,
            "curve": [{"rate": one.rate, "outcome": one.outcome, "cell": one.cell} for one in self.curve],
        }


def find_capacity(target: str, plan: SearchPlan, slo: Slo, measure: Callable[[float], Cell]) -> Capacity:
    """Search for the highest rate whose cell meets `slo`. Raises SloMissed when a cell violates an invariant."""
    from pytest_dsql.experiment.search import search

    __tracebackhide__ = True
    points: list[Point] = []

    def probe(rate: float) -> Outcome:
        __tracebackhide__ = True
        cell = measure(rate)
        verdict = cell.verdict(slo)
        if any((cell.invariants or {}).values()):
            raise SloMissed(cell.table(verdict))
        points.append(Point.of(rate, verdict.outcome, cell))
        return verdict.outcome

    bracket = search(probe, plan)
    return Capacity(target, bracket, tuple(sorted(points, key=lambda one: one.rate)))


def reference_rate(capacities: Iterable[Capacity]) -> float | None:
    """Qref: the lowest of several targets' capacities, the rate at which they can be compared; None without one."""
    rates = [one.rate for one in capacities]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None


def connections_for(rate: float, slo: Slo) -> int:
    """How many connections an open loop at `rate` gets, so that only a database that misses `slo` uses them all.

    By Little's law, `rate` times the slowest limit are in flight when every request takes as long as that limit; a
    fifth more for chance.
    """
    limits = [limit for one in slo.latencies for limit in one.limits.values()]
    slowest_s = max(limits, default=1_000_000_000) / 1e9
    return min(max(_FEWEST_CONNECTIONS, math.ceil(1.2 * rate * slowest_s)), _MOST_CONNECTIONS)
