"""Searching for the highest rate that meets an SLO: up by steps, then by halving the bracket, then once more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from pytest_dsql.slo.verdict import Outcome

#: What keeps the bracket's upper rate from passing: the database missed the SLO; the generator was at its limit; too
#: little evidence; nothing (the search ended at the highest rate that it was allowed).
Limit: TypeAlias = Literal["database", "generator", "undecided", "none"]

#: How often a rate is tried before its outcome holds, when the first trial was no pass.
_TRIALS: Final = 3
#: A search that finds no passing rate ends at this part of its first.
_LOWEST: Final = 1 / 64

_LIMITS: Final[dict[Outcome, Limit]] = {"fail": "database", "invalid": "generator", "inconclusive": "undecided"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How a search goes. Rates are requests per second; raises ValueError for what can't be searched."""

    start: float
    most: float  #: never above
    growth: float = 2.0  #: from one rate to the next while they pass
    precision: float = 0.1  #: the bracket is narrowed until its ends are no farther apart, as a share of the lower
    repeats: int = 1  #: the rate that is found must pass so often

    def __post_init__(self) -> None:
        if not 0 < self.start <= self.most < math.inf:
            raise ValueError(f"a search starts above 0 and not above its highest rate, not at {self.start:g}")
        if not self.growth > 1 or not self.precision > 0 or self.repeats < 1:
            raise ValueError("a search needs a growth above 1, a precision above 0 and at least one repeat")


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """One cell of a search."""

    rate: float
    outcome: Outcome


@final
@dataclass(frozen=True, slots=True)
class Bracket:
    """What a search found: the capacity is at least `low`, and below `high` as far as `limit` says."""

    low: float | None  #: the highest rate that passed as often as asked; None when none did
    high: float | None  #: the lowest rate above it that did not pass; None when none was tried
    limit: Limit
    passes: int  #: how often `low` passed
    trials: Sequence[Trial]


def search(probe: Callable[[float], Outcome], plan: SearchPlan) -> Bracket:
    """Find the highest rate that passes; `probe` measures one cell at a rate.

    A pass holds at once: a false one has the small chance that its verdict spends. Anything else is tried again, best
    of three, because near the knee one run is no evidence: the same code gave a p99 of 4.8 and of 60 ms minutes apart.
    """
    searching = _Search(probe, plan)
    searching.climb()
    searching.narrow()
    while not searching.confirm() and searching.descend():
        searching.narrow()
    return searching.bracket()


@final
class _Search:
    def __init__(self, probe: Callable[[float], Outcome], plan: SearchPlan) -> None:
        self._probe = probe
        self._plan = plan
        self._trials: list[Trial] = []
        self._passed: list[float] = []  #: ascending
        self._high: float | None = None
        self._limit: Limit = "none"

    def _try(self, rate: float) -> Outcome:
        outcome = self._probe(rate)
        self._trials.append(Trial(rate, outcome))
        return outcome

    def _passes(self, rate: float) -> bool:
        """Decide on a rate, and narrow the bracket by it."""
        seen: Counter[Outcome] = Counter()
        decided: Outcome | None = None
        while decided is None:
            outcome = self._try(rate)
            seen[outcome] += 1
            if outcome == "invalid" or (outcome == "pass" and seen.total() == 1) or seen[outcome] == 2:
                decided = outcome
            elif seen.total() == _TRIALS:
                decided = "inconclusive"
        if decided == "pass":
            self._passed.append(rate)
            return True
        self._high, self._limit = rate, _LIMITS[decided]
        return False

    def climb(self) -> None:
        """Go up until a rate does not pass, or down from the first until one does."""
        plan = self._plan
        rate = plan.start
        if self._passes(rate):
            while rate < plan.most:
                rate = min(rate * plan.growth, plan.most)
                if not self._passes(rate):
                    return
            return
        self.descend()

    def descend(self) -> bool:
        """Go down from the lowest rate that did not pass until one does; tell whether one did."""
        plan = self._plan
        assert self._high is not None
        rate = self._high
        while rate / plan.growth >= plan.start * _LOWEST:
            before = self._limit
            rate /= plan.growth
            if self._passes(rate):
                return True
            if before == self._limit == "undecided":  # lower still there would be even less evidence
                break
        return False

    def narrow(self) -> None:
        """Halve the bracket, by ratio, until it is as narrow as asked."""
        while self._passed and self._high is not None:
            low = self._passed[-1]
            if self._high <= low * (1 + self._plan.precision):
                return
            self._passes(math.sqrt(low * self._high))

    def confirm(self) -> bool:
        """Let the highest rate pass as often as asked; one that does not is no capacity, and the next lower is tried.

        Each trial is a pass or not: with `repeats`, all of them must pass. Tells whether a rate is left, or none was.
        """
        if not self._passed:
            return True
        while self._passed:
            rate = self._passed[-1]
            for _ in range(self._plan.repeats - 1):
                outcome = self._try(rate)
                if outcome != "pass":
                    self._passed.pop()
                    self._high, self._limit = rate, _LIMITS[outcome]
                    break
            else:
                return True
        return False

    def bracket(self) -> Bracket:
        low = self._passed[-1] if self._passed else None
        passes = sum(one.outcome == "pass" for one in self._trials if one.rate == low)
        return Bracket(low, self._high, self._limit, passes, tuple(self._trials))
