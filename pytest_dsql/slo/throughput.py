"""Whether a cell was fast enough on the whole: a confidence bound on the mean of its time slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import Literal

#: Time slices that a window is cut into. Successive slices of seconds are nearly independent where successive requests
#: are not (batch means: Law, "Simulation Modeling and Analysis", chapter 9).
SLICES = 20


def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, to about four digits from ten degrees of freedom on.

    The expansion around the normal quantile is Abramowitz and Stegun's 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    n = float(degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def margin_tps(successes: Sequence[int], duration_s: float, level: float) -> float:
    """Return how far the true rate may be from the measured one, on one side, at `level`; infinite without slices."""
    if len(successes) < 2 or duration_s <= 0:
        return math.inf
    slice_s = duration_s / len(successes)
    error = stdev(successes) / slice_s / math.sqrt(len(successes))
    return student_quantile(1.0 - level, len(successes) - 1) * error


def judge_rate(
    successes: Sequence[int], duration_s: float, minimum_tps: float, level: float
) -> Literal["pass", "fail", "inconclusive"]:
    """Tell whether the rate of successes is at least `minimum_tps`, from their counts in equal slices of the window."""
    margin = margin_tps(successes, duration_s, level)
    if not math.isfinite(margin):
        return "inconclusive"
    rate = fmean(successes) * len(successes) / duration_s
    if rate - margin >= minimum_tps:
        return "pass"
    return "fail" if rate + margin < minimum_tps else "inconclusive"
