"""Durations by bucket: edges that limits lie on, and percentiles that are a tenth of a percent off at most."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.buckets import (
    Histogram,
    buckets_of,
    coarse,
    coarse_edge_ns,
    counts_exactly,
    edge_ns,
)
from pytest_dsql.load.statistics import distribution, percentile

MS = 1_000_000
durations = st.integers(1, 10**13)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    made.add(values)
    return made


@given(durations)
def test_a_duration_is_at_most_a_thousandth_below_its_edge(duration_ns: int) -> None:
    [bucket] = buckets_of([duration_ns])
    assert edge_ns(bucket - 1) < duration_ns <= edge_ns(bucket)
    assert duration_ns <= 1_000 or edge_ns(bucket) <= duration_ns * 1.001 + 1
    assert coarse_edge_ns(coarse(bucket)) >= edge_ns(bucket)
    assert duration_ns <= 1_000 or coarse_edge_ns(coarse(bucket)) <= duration_ns * 1.01 + 10
    assert coarse(bucket) < 1 << 16


@given(st.integers(0, 89_999))
def test_an_edge_is_in_its_own_bucket_and_what_follows_in_the_next(bucket: int) -> None:
    edge = edge_ns(bucket)
    assert buckets_of([edge, edge + 1]) == [bucket, bucket + 1]
    assert coarse(bucket) <= coarse(bucket + 1) <= coarse(bucket) + 1


def test_what_is_longer_than_the_last_edge_is_counted_there() -> None:
    [last, beyond] = buckets_of([10**13, 10**15])
    assert last == beyond
    assert histogram([10**15]).percentile(500) == 10**13
    assert histogram([10**15]).max_ns == 10**15


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=300))
def test_percentiles_are_the_exact_ones_or_a_little_longer(values: list[int]) -> None:
    ordered = sorted(values)
    for thousandths in (500, 950, 990, 999):
        exact = percentile(ordered, thousandths)
        assert exact <= histogram(values).percentile(thousandths) <= max(1_000, exact * 1.001 + 1)
    exact_ones = distribution(values)
    found = histogram(values).distribution()
    assert found is not None
    assert exact_ones is not None
    assert (found.n, found.max) == (exact_ones.n, exact_ones.max)
    assert math.isclose(found.mean, exact_ones.mean)
    assert histogram(values).at_rank(len(values)) <= ordered[-1]


@pytest.mark.parametrize("limit_ms", [50, 100, 200, 12.5, 0.25, 1234, 99.99])
@given(values=st.lists(st.integers(1, 2_000 * MS), max_size=200))
def test_what_is_over_a_limit_of_four_digits_is_counted_exactly(limit_ms: float, values: list[int]) -> None:
    limit = limit_ms * MS
    near = [int(limit) + offset for offset in (-1, 0, 1)]
    assert counts_exactly(limit)
    assert histogram([*values, *near]).over(limit) == sum(value > limit for value in [*values, *near])


@pytest.mark.parametrize("limit_ms", [12.345, 100.01, 1234.5])
def test_limits_of_more_digits_are_told(limit_ms: float) -> None:
    assert not counts_exactly(limit_ms * MS)


def test_the_size_does_not_grow_with_the_number() -> None:
    once = [round(1.01**power * 1000) for power in range(1500)]
    few, many = histogram(once), histogram(once * 50)
    assert len(few.counts) == len(many.counts)
    assert many.n == 50 * few.n
