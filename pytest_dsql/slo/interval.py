"""How well a percentile is known: a confidence interval from the ranks of what was measured. For display only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from pytest_dsql.slo.binomial import at_least, at_most
from pytest_dsql.slo.design_effect import design_effect

#: How often an interval of this kind holds the true percentile.
CONFIDENCE: Final = 0.95


def percentile_interval(in_order: Sequence[int], share: float) -> tuple[int | None, int | None]:
    """Return the values between which the true percentile lies, with a confidence of 95 %.

    `in_order` has the latencies in order of intended start, so that slow ones that come in clusters widen it. The ends
    are values that were measured; None where so few values can't give one. No distribution is assumed: a value is above
    the true percentile as often as a coin of that share falls (Conover, "Practical Nonparametric Statistics", on order
    statistics), and clusters make the number of throws smaller (see `design_effect`).
    """
    n = len(in_order)
    if not n:
        return None, None
    ordered = sorted(in_order)
    estimate = ordered[max(0, math.ceil(share * n) - 1)]
    effect = design_effect([place for place, value in enumerate(in_order) if value > estimate], n).effect
    low, high = interval_ranks(n, effect, share)
    return None if low is None else ordered[low - 1], None if high is None else ordered[high - 1]


def interval_ranks(n: int, effect: float, share: float) -> tuple[int | None, int | None]:
    """Return the ranks, from 1, of the two values among `n` between which the true percentile lies; see above.

    `effect` is the design effect of the values over the measured percentile.
    """
    throws = max(1, math.floor(n / effect))
    tail = (1 - CONFIDENCE) / 2
    # The lower end may be the value of rank r when fewer than r of the throws could hardly be below the percentile.
    low = _last(lambda rank: at_most(rank - 1, throws, share) <= tail, throws)
    high = _first(lambda rank: at_least(rank, throws, share) <= tail, throws)
    return (
        None if low is None else max(1, math.floor(low / throws * n)),
        None if high is None else min(n, math.ceil(high / throws * n)),
    )


def _last(holds: Callable[[int], bool], n: int) -> int | None:
    """Return the last of 1 .. n for which it holds; it holds up to some point."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low or None


def _first(holds: Callable[[int], bool], n: int) -> int | None:
    """Return the first of 1 .. n for which it holds; it holds from some point on."""
    low, high = 1, n + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low if low <= n else None
