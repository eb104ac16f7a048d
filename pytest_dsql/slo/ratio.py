"""How many times as much: the ratio of two measured figures, with an interval. For display only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final, final

from pytest_dsql.slo.throughput import student_quantile

#: Student's t at 97.5 % for 1 .. 9 degrees of freedom, where its expansion is not exact enough (Abramowitz and Stegun,
#: table 26.10).
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A positive figure and its interval of 95 %; an end that is not known is None."""

    value: float
    low: float | None = None
    high: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure over another; the true ratio lies from `low` to `high` with a confidence of 95 %, None: not known."""

    value: float
    low: float | None
    high: float | None
    runs: int  #: of each side: 1 when the interval is that of one run, which knows nothing of how runs differ


def ratio(above: Estimate, below: Estimate) -> Ratio | None:
    """Divide two independent figures of one run each; None when one of them is not positive.

    The interval comes from theirs by the method of variance estimates recovery, on logarithms (Zou and Donner,
    "Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008).
    """
    if not (above.value > 0 and below.value > 0):
        return None
    value = above.value / below.value
    low = _distance(above.value, above.low, below.value, below.high)
    high = _distance(above.value, above.high, below.value, below.low)
    return Ratio(
        value,
        None if low is None else value * math.exp(-low),
        None if high is None else value * math.exp(high),
        runs=1,
    )


def _distance(above: float, above_end: float | None, below: float, below_end: float | None) -> float | None:
    if above_end is None or below_end is None or not (above_end > 0 and below_end > 0):
        return None
    return math.hypot(math.log(above_end / above), math.log(below_end / below))


def ratio_of_runs(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """Divide figures of two or more pairs of runs, each made one right after the other; None when one is not positive.

    The mean and Student's interval of the logarithms of their ratios: what all pairs have in common cancels out.
    """
    if len(pairs) < 2 or not all(above > 0 and below > 0 for above, below in pairs):
        return None
    logs = [math.log(above / below) for above, below in pairs]
    degrees = len(logs) - 1
    t = _T[degrees - 1] if degrees <= len(_T) else student_quantile(0.975, degrees)
    mean, error = fmean(logs), t * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - error), math.exp(mean + error), runs=len(pairs))
