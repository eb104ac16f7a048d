"""Exact tests agree with exact arithmetic, and stay in bounds where doubles would not."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.slo.binomial import at_least, at_most, fails, minimum_samples, passes, samples_to_settle


def _exact_at_most(k: int, n: int, p: Fraction) -> Fraction:
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 2), Fraction(99, 100)])
@pytest.mark.parametrize("n", [1, 2, 10, 97, 300])
def test_tails_agree_with_fractions(n: int, p: Any) -> None:
    for k in {0, 1, 2, n // 10, n // 2, n - 1, n}:
        if 0 <= k <= n:
            assert at_most(k, n, float(p)) == pytest.approx(float(_exact_at_most(k, n, p)), rel=1e-9)
            assert at_least(k, n, float(p)) == pytest.approx(
                float(1 - (_exact_at_most(k - 1, n, p) if k else 0)), rel=1e-9
            )


def test_ten_million_trials_agree_with_the_normal_law() -> None:
    """At this size the law of large numbers is exact enough to check against (continuity corrected)."""
    n, p = 10_000_000, 0.01
    mean, deviation = n * p, math.sqrt(n * p * (1 - p))
    for z in (-2.0, 0.0, 2.0):
        k = round(mean + z * deviation)
        normal = 0.5 * math.erfc(-(k + 0.5 - mean) / deviation / math.sqrt(2))
        assert at_most(k, n, p) == pytest.approx(normal, rel=0.01)


def test_far_tails_don_t_underflow_to_a_wrong_answer() -> None:
    assert at_most(0, 10_000_000, 0.01) == 0.0
    assert at_least(10_000_000, 10_000_000, 0.01) == 0.0
    assert at_most(100, 10_000_000, 1e-5) == pytest.approx(0.5266, abs=0.001)  # Poisson(100)


@pytest.mark.parametrize(("allowed", "level", "expected"), [(0.01, 0.01, 459), (0.001, 0.01, 4603), (0.5, 0.01, 7)])
def test_minimum_samples(allowed: float, level: float, expected: object) -> None:
    assert minimum_samples(allowed, level) == expected


@given(allowed=st.floats(1e-4, 0.9), level=st.floats(1e-4, 0.2))
def test_the_minimum_is_the_smallest_that_passes(allowed: float, level: float) -> None:
    n = minimum_samples(allowed, level)
    assert passes(0, n, allowed, level)
    assert n == 1 or not passes(0, n - 1, allowed, level)


probabilities = st.floats(1e-4, 1 - 1e-4)


@given(n=st.integers(1, 5000), p=probabilities, data=st.data())
def test_tails_add_up_to_one(n: int, p: Any, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert at_most(k, n, p) + at_least(k + 1, n, p) == pytest.approx(1, abs=1e-9)


@given(n=st.integers(1, 5000), p=probabilities, data=st.data())
def test_more_over_never_makes_a_pass_likelier(n: int, p: Any, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n - 1))
    assert at_most(k, n, p) <= at_most(k + 1, n, p) + 1e-12
    assert at_least(k, n, p) >= at_least(k + 1, n, p) - 1e-12


@given(n=st.integers(1, 5000), p=probabilities, data=st.data())
def test_more_requests_with_as_many_over_never_make_a_pass_less_likely(n: int, p: Any, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert at_most(k, n + 1, p) <= at_most(k, n, p) + 1e-12


@given(n=st.integers(0, 100_000), allowed=probabilities, level=st.floats(1e-4, 0.4), data=st.data())
def test_nothing_both_passes_and_fails(n: int, allowed: float, level: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert not (passes(k, n, allowed, level) and fails(k, n, allowed, level))


def test_no_data_decides_nothing() -> None:
    assert not passes(0, 0, 0.01, 0.01)
    assert not fails(0, 0, 0.01, 0.01)


@pytest.mark.parametrize("wrong", [(0, -1, 0.1), (-1, 5, 0.1), (0, 5, 0.0), (0, 5, 1.0)])
def test_arguments_that_are_no_binomial_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"binomial|negative"):
        at_most(*wrong)


def test_minimum_samples_refuses_what_is_no_share() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        minimum_samples(0.0, 0.01)


@pytest.mark.parametrize("share", [0.002, 0.005, 0.009, 0.011, 0.02, 0.5])
def test_the_advice_settles_the_objective(share: float) -> None:
    n = samples_to_settle(share, 0.01, 0.01)
    assert n is not None
    # Rounding makes single sizes jump, so the advice is checked a little above itself.
    n = math.ceil(n * 1.2)
    assert passes(math.ceil(share * n), n, 0.01, 0.01) or fails(math.floor(share * n), n, 0.01, 0.01)


def test_no_size_settles_what_lies_on_the_limit() -> None:
    assert samples_to_settle(0.01, 0.01, 0.01, at_most_n=1_000_000) is None


@settings(max_examples=30)
@given(share=st.floats(0.0001, 0.9), allowed=st.sampled_from([0.05, 0.01, 0.001]))
def test_the_advice_is_never_below_what_can_decide(share: float, allowed: float) -> None:
    n = samples_to_settle(share, allowed, 0.01)
    assert n is None or n >= 1
