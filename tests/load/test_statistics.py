"""Percentiles are exact, by one rank rule."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.statistics import LatencySummary, Summaries, answered, distribution, percentile
from tests.load.made_cells import samples

durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=300)


@pytest.mark.parametrize(
    ("n", "thousandths", "rank"),
    [(1, 500, 1), (2, 500, 1), (3, 500, 2), (100, 990, 99), (101, 990, 100), (1000, 999, 999), (1001, 999, 1000)],
)
def test_nearest_rank(n: int, thousandths: int, rank: int) -> None:
    assert percentile(range(1, n + 1), thousandths) == rank


@given(values=durations, thousandths=st.integers(1, 1000))
def test_a_percentile_is_the_smallest_value_with_enough_at_or_below_it(values: list[int], thousandths: int) -> None:
    found = percentile(sorted(values), thousandths)
    share = Fraction(thousandths, 1000)
    assert found in values
    assert Fraction(sum(one <= found for one in values), len(values)) >= share
    assert Fraction(sum(one < found for one in values), len(values)) < share


@given(values=durations, limit=st.integers(0, 10**12), thousandths=st.integers(1, 999))
def test_a_percentile_within_the_limit_means_that_few_are_over(values: list[int], limit: int, thousandths: int) -> None:
    over = sum(one > limit for one in values)
    few = Fraction(over, len(values)) <= 1 - Fraction(thousandths, 1000)
    assert (percentile(sorted(values), thousandths) <= limit) is few


@given(values=durations)
def test_a_distribution_rises(values: list[int]) -> None:
    found = distribution(values)
    assert found is not None
    assert min(values) <= found.p50 <= found.p95 <= found.p99 <= found.p999 <= found.max == max(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))


@given(values=durations, factor=st.integers(2, 1000))
def test_percentiles_scale_with_the_unit(values: list[int], factor: int) -> None:
    scaled = distribution(one * factor for one in values)
    plain = distribution(values)
    assert scaled is not None
    assert plain is not None
    assert scaled.p99 == plain.p99 * factor


def test_no_values_have_no_percentile() -> None:
    assert distribution([]) is None
    with pytest.raises(ValueError, match="no values"):
        percentile([], 500)


@pytest.mark.parametrize("wrong", [0, 1001, -5])
def test_percentiles_are_in_thousandths(wrong: int) -> None:
    with pytest.raises(ValueError, match="thousandths"):
        percentile([1], wrong)


def test_only_answered_requests_have_a_latency() -> None:
    made = samples("t", len(Outcome), latencies_ms=range(1, len(Outcome) + 1), outcomes=list(Outcome))
    assert answered(made, made.latency_ns) == [1_000_000, 2_000_000, 3_000_000]  # ok, ok_retried, rejected


def test_a_summary_is_in_milliseconds() -> None:
    summary = LatencySummary.of(distribution([1_500_000, 2_500_000]))
    assert (summary.n, summary.p50_ms, summary.max_ms, summary.mean_ms) == (2, 1.5, 2.5, 2.0)


def test_a_summary_of_nothing_compares_with_nothing() -> None:
    nothing = LatencySummary.of(None)
    assert nothing.n == 0
    assert math.isnan(nothing.p99_ms)
    assert not nothing.p99_ms <= 1e9


def test_summaries_are_made_once_and_by_name() -> None:
    made: list[str] = []

    def summarise(name: str) -> LatencySummary:
        made.append(name)
        return LatencySummary.of(distribution([1]))

    summaries = Summaries(["a", "b"], summarise)
    assert summaries("a") is summaries["a"]
    assert made == ["a"]
    assert list(summaries) == ["a", "b"]


def test_summaries_take_the_transaction_itself() -> None:
    class Named:
        name = "a"

    assert Summaries(["a"], lambda _name: LatencySummary.of(None))(Named()).n == 0


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match="'c'; there is: a, b"):
        Summaries(["a", "b"], lambda _name: LatencySummary.of(None))("c")
