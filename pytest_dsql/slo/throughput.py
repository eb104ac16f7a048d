"""Whether a cell was fast enough on the whole: a confidence bound on the mean of its time slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import Literal

#: Time slices that a window is cut into. Successive slices are much less dependent than successive requests (batch
#: means: Law, "Simulation Modeling and Analysis", chapter 9); what is left of it widens the margin.
SLICES = 20
#: A dependence that is estimated above this leaves nothing to decide by.
_MOST_DEPENDENT = 0.9
#: Below so many slices' worth of independent ones the quantiles of Student's t are hardly known.
_FEWEST_DEGREES = 4.0
#: Fewer successes are too lumpy for Student's t: in slices of one or none their spread shrinks with their number.
_LUMPY = 100


def student_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution, to about four digits from ten degrees of freedom on.

    With four degrees it is 0.5 % too low. The expansion around the normal quantile is Abramowitz and Stegun's 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    n = degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def margin_tps(successes: Sequence[int], duration_s: float, level: float) -> float:
    """Return how far the true rate may be from the measured one, on one side, at `level`; infinite without slices.

    A rate that wanders makes neighbouring slices alike, so that they say less than as many independent ones: by as much
    as a first-order autoregressive process of their lag-one correlation would (Law, chapter 9), corrected for its bias
    in short series (Marriott and Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954).
    """
    count = len(successes)
    if count < 2 or duration_s <= 0:
        return math.inf
    mean = fmean(successes)
    squares = sum((one - mean) ** 2 for one in successes)
    if not squares:
        return 0.0
    alike = sum((one - mean) * (other - mean) for one, other in pairwise(successes)) / squares
    alike = min(_MOST_DEPENDENT, max(0.0, alike + (1 + 4 * max(0.0, alike)) / count))
    worth = count * (1 - alike) / (1 + alike)
    error = math.sqrt(squares / (count - 1) / worth) * count / duration_s
    return student_quantile(1.0 - level, max(min(_FEWEST_DEGREES, count - 1), worth - 1)) * error


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
    if rate + margin >= minimum_tps:
        return "inconclusive"
    total = sum(successes)
    planned = minimum_tps * duration_s
    return "inconclusive" if planned < _LUMPY and _poisson_at_most(total, planned) > level else "fail"


def _poisson_at_most(k: int, mean: float) -> float:
    """Return the probability of at most `k` of independent events of which `mean` are expected."""
    term = total = math.exp(-mean)
    for i in range(1, k + 1):
        term *= mean / i
        total += term
    return total
