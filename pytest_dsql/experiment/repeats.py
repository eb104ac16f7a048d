"""Repeats: the same cell measured several times, because one run near a knee is no evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from pytest_dsql.experiment.capacity import REPEATS
from pytest_dsql.load.cell import Cell
from pytest_dsql.load.connections import raise_unless_passed
from pytest_dsql.slo.objectives import Slo
from pytest_dsql.slo.verdict import Outcome, Verdict

#: The first of these that any run has is what all of them together have.
_WORST_FIRST: Final[tuple[Outcome, ...]] = ("fail", "invalid", "inconclusive")


@final
class Repeats:
    """Several runs of one cell, which pass only when every one does. Raises ValueError for none, or different cells."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        if not cells:
            raise ValueError("no runs, and no data never passes")
        if len({frozenset(cell.latency) for cell in cells}) > 1:
            raise ValueError("only runs of one cell can be judged together: they have the same transactions")
        self.cells: Final = tuple(cells)  #: in the order in which they ran

    @property
    def provisional(self) -> bool:
        """Whether there are fewer than three."""
        return len(self.cells) < REPEATS

    def spread(self, transaction: str, percentile: str = "p99") -> tuple[float, float]:
        """Return the lowest and highest of the runs' percentile (`p50` ... `p999`, `max`), in milliseconds.

        NaN when a run answered no such request. Raises KeyError for a transaction that the mix doesn't have.
        """
        values = [float(getattr(cell.latency(transaction), f"{percentile}_ms")) for cell in self.cells]
        return (math.nan, math.nan) if any(map(math.isnan, values)) else (min(values), max(values))

    @property
    def tps_spread(self) -> tuple[float, float]:
        """The lowest and highest of the runs' committed transactions per second."""
        rates = [cell.tps for cell in self.cells]
        return min(rates), max(rates)

    def verdict(self, slo: Slo) -> Verdict:
        """Decide over all runs: pass when each passes, otherwise as the worst of them, with every reason."""
        verdicts = [cell.verdict(slo) for cell in self.cells]
        count = len(verdicts)
        outcome: Outcome = next((one for one in _WORST_FIRST if any(v.outcome == one for v in verdicts)), "pass")
        hindered = [number for number, one in enumerate(verdicts, 1) if one.outcome != "pass"]
        if hindered:
            first = f"{len(hindered)} of {count} runs did not pass (run {', '.join(map(str, hindered))})."
        elif self.provisional:
            first = f"Provisional: all {count} runs passed, and it takes {REPEATS} to tell a result from luck."
        else:
            first = f"All {count} runs passed."
        reasons = [f"Run {n}: {reason}" for n, one in enumerate(verdicts, 1) for reason in one.reasons]
        return Verdict(
            outcome,
            (first, *self._spreads(), *reasons),
            tuple(result for one in verdicts for result in one.objectives),
            max(one.look for one in verdicts),
            generator_signs=tuple(dict.fromkeys(sign for one in verdicts for sign in one.generator_signs)),
            engine_signs=tuple(dict.fromkeys(sign for one in verdicts for sign in one.engine_signs)),
        )

    def _spreads(self) -> list[str]:
        low, high = self.tps_spread
        lines = [f"Between the runs: {low:,.1f} to {high:,.1f} transactions/s."]
        for name in self.cells[0].latency:
            low, high = self.spread(name)
            if not math.isnan(low):
                lines.append(f"Between the runs: {name} p99 {low:.2f} to {high:.2f} ms.")
        return lines

    def assert_meets(self, slo: Slo) -> None:
        """Pass when every run meets the objectives. Raises as `Cell.assert_meets` does; the text has every table."""
        __tracebackhide__ = True
        verdict = self.verdict(slo)
        text = [f"{verdict.outcome}: {verdict.reasons[0]}", *verdict.reasons[1:]]
        raise_unless_passed(verdict, "\n\n".join(["\n".join(text), *(cell.table() for cell in self.cells)]))
