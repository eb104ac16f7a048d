"""Exact one-sided binomial tests, in log space so that ten million trials neither underflow nor take long."""

from __future__ import annotations

import math
from statistics import NormalDist

#: A term this much smaller than the sum changes no digit of a double.
_NEGLIGIBLE = 1e-17


def _log_pmf(k: int, n: int, p: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + k * math.log(p) + (n - k) * math.log1p(-p)


def _check(k: int, n: int, p: float) -> None:
    if n < 0 or not 0 < p < 1:
        raise ValueError(f"a binomial needs n >= 0 and 0 < p < 1, not n={n!r}, p={p!r}")
    if k < 0:
        raise ValueError(f"a count can't be negative: {k!r}")


def _lower_sum(k: int, n: int, p: float) -> float:
    """Sum the terms 0..k from the largest down; only for k up to the mean, where they shrink."""
    term = total = 1.0
    odds = (1 - p) / p
    for i in range(k, 0, -1):
        term *= i / (n - i + 1) * odds
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(1.0, math.exp(_log_pmf(k, n, p)) * total)


def _upper_sum(k: int, n: int, p: float) -> float:
    """Sum the terms k..n from the largest down; only for k from the mean on, where they shrink."""
    term = total = 1.0
    odds = p / (1 - p)
    for i in range(k, n):
        term *= (n - i) / (i + 1) * odds
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(1.0, math.exp(_log_pmf(k, n, p)) * total)


def at_most(k: int, n: int, p: float) -> float:
    """Return the probability of at most `k` of `n` when each happens with probability `p`."""
    _check(k, n, p)
    if k >= n:
        return 1.0
    return _lower_sum(k, n, p) if k <= n * p else 1.0 - _upper_sum(k + 1, n, p)


def at_least(k: int, n: int, p: float) -> float:
    """Return the probability of at least `k` of `n` when each happens with probability `p`."""
    _check(k, n, p)
    if k == 0:
        return 1.0
    if k > n:
        return 0.0
    return _upper_sum(k, n, p) if k >= n * p else 1.0 - _lower_sum(k - 1, n, p)


def minimum_samples(allowed: float, level: float) -> int:
    """Return how many requests, none of them over, are needed to pass an objective that allows the share `allowed`.

    459 for a p99 at a level of 1 %, 4,603 for a failure rate of 0.1 %.
    """
    if not 0 < allowed < 1 or not 0 < level < 1:
        raise ValueError(f"allowed and level must be between 0 and 1, not {allowed!r} and {level!r}")
    n = max(1, math.ceil(math.log(level) / math.log1p(-allowed)))
    # The quotient of two rounded logarithms may land on the wrong side of a whole number.
    while at_most(0, n, allowed) > level:
        n += 1
    while n > 1 and at_most(0, n - 1, allowed) <= level:
        n -= 1
    return n


def passes(k: int, n: int, allowed: float, level: float) -> bool:
    """Tell whether so few over could hardly come from a system that misses the objective."""
    return n > 0 and at_most(k, n, allowed) <= level


def fails(k: int, n: int, allowed: float, level: float) -> bool:
    """Tell whether so many over could hardly come from a system that meets the objective."""
    return n > 0 and at_least(k, n, allowed) <= level


def samples_to_settle(share: float, allowed: float, level: float, *, at_most_n: int = 10_000_000) -> int | None:
    """Return about how many requests would decide the objective if the share over the limit stays what it is.

    None when not even `at_most_n` would: the share is too near to what is allowed.
    """

    def settled(n: int) -> bool:
        if share < allowed:
            return passes(math.ceil(share * n), n, allowed, level)
        return fails(math.floor(share * n), n, allowed, level)

    # The normal law is near enough to begin the search at, and to give up by.
    deviations = NormalDist().inv_cdf(1 - level)
    normal = deviations**2 * allowed * (1 - allowed) / (share - allowed) ** 2 if share != allowed else math.inf
    if normal > 2 * at_most_n:
        return None
    high = max(1, int(normal))
    while high > 1 and settled(high):
        high //= 2
    while not settled(high):
        if high >= at_most_n:
            return None
        high = min(2 * high, at_most_n)
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        if settled(middle):
            high = middle
        else:
            low = middle
    return high
