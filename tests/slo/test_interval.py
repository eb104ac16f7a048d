"""Intervals for display hold the true percentile as often as they say."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

from pytest_dsql.slo.interval import percentile_interval

TRIALS = 400
#: Coverage of at least 93 % at 95 %, less what chance takes off so many trials (two standard deviations).
LEAST = 0.93 - 2 * (0.93 * 0.07 / TRIALS) ** 0.5


def exponential(rng: random.Random, n: int) -> list[int]:
    return [round(rng.expovariate(1) * 1e6) for _ in range(n)]


def bimodal(rng: random.Random, n: int) -> list[int]:
    """Two modes far apart, the slow one with 4 % of the requests."""
    return [round((200 if rng.random() < 0.04 else 5) * 1e6 * rng.uniform(0.9, 1.1)) for _ in range(n)]


def in_runs(rng: random.Random, n: int) -> list[int]:
    """Requests that are slow or fast come in runs of about 5."""
    values: list[int] = []
    while len(values) < n:
        value = rng.expovariate(1) * 1e6
        values += [round(value * rng.uniform(0.98, 1.02)) for _ in range(rng.randrange(1, 10))]
    return values[:n]


@cache
def many_sorted(make: Callable[[random.Random, int], list[int]]) -> list[int]:
    return sorted(make(random.Random("truth"), 400_000))


def true_percentile(make: Callable[[random.Random, int], list[int]], share: float) -> int:
    many = many_sorted(make)
    return many[int(share * len(many)) - 1]


@pytest.mark.parametrize("make", [exponential, bimodal, in_runs])
@pytest.mark.parametrize(("share", "n"), [(0.5, 400), (0.95, 2_000), (0.99, 4_000)])
def test_the_true_percentile_is_inside_as_often_as_promised(
    make: Callable[[random.Random, int], list[int]], share: float, n: int
) -> None:
    rng = random.Random(f"{make.__name__}-{share}")
    truth = true_percentile(make, share)
    inside = 0
    for _ in range(TRIALS):
        low, high = percentile_interval(make(rng, n), share)
        inside += (low is None or low <= truth) and (high is None or truth <= high)
    assert inside / TRIALS >= LEAST


def test_more_requests_make_it_narrower() -> None:
    rng = random.Random(1)
    widths = []
    for n in (500, 50_000):
        low, high = percentile_interval(exponential(rng, n), 0.95)
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths[1] < widths[0] / 5


def test_clusters_make_it_wider() -> None:
    rng = random.Random(2)
    in_tens = [value for value in exponential(rng, 1_000) for _ in range(10)]
    mixed = rng.sample(in_tens, len(in_tens))
    widths = []
    for values in (mixed, in_tens):
        low, high = percentile_interval(values, 0.95)
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_too_few_requests_have_no_upper_end() -> None:
    low, high = percentile_interval(list(range(50)), 0.99)
    assert low is not None
    assert high is None


def test_no_requests_have_no_interval() -> None:
    assert percentile_interval([], 0.5) == (None, None)


def test_one_request_says_nothing() -> None:
    assert percentile_interval([7], 0.5) == (None, None)
