"""Ratios and how sure they are."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest

from pytest_dsql.slo.ratio import Estimate, ratio, ratio_of_runs


def test_a_ratio_has_the_interval_that_both_figures_give_it() -> None:
    found = ratio(Estimate(20.0, 18.0, 23.0), Estimate(10.0, 9.5, 11.0))
    assert found is not None
    assert found.value == 2.0
    assert found.low == pytest.approx(2 * math.exp(-math.hypot(math.log(0.9), math.log(1.1))))
    assert found.high == pytest.approx(2 * math.exp(math.hypot(math.log(1.15), math.log(0.95))))


@pytest.mark.parametrize(
    ("above", "below"),
    [(Estimate(0.0), Estimate(1.0)), (Estimate(1.0), Estimate(0.0)), (Estimate(math.nan), Estimate(1.0))],
)
def test_nothing_is_no_times_as_much_as_anything(above: Estimate, below: Estimate) -> None:
    assert ratio(above, below) is None
    assert ratio_of_runs([(above.value, below.value)] * 3) is None


def test_an_end_that_one_of_them_lacks_is_unknown() -> None:
    found = ratio(Estimate(2.0, None, 3.0), Estimate(1.0, 0.5, 2.0))
    assert found is not None
    assert found.low is None
    assert found.high is not None


def test_the_other_way_round_it_is_the_inverse() -> None:
    one, other = Estimate(20.0, 18.0, 23.0), Estimate(10.0, 9.5, 11.0)
    there, back = ratio(one, other), ratio(other, one)
    assert there is not None
    assert back is not None
    assert (there.low, there.high) == (pytest.approx(1 / back.high), pytest.approx(1 / back.low))  # type: ignore[operator]


def test_two_runs_of_each_are_the_fewest() -> None:
    assert ratio_of_runs([(2.0, 1.0)]) is None
    found = ratio_of_runs([(2.0, 1.0), (2.0, 1.0)])
    assert found is not None
    assert (found.value, found.low, found.high, found.runs) == pytest.approx((2.0, 2.0, 2.0, 2))


@pytest.mark.parametrize("runs", [2, 3, 5, 12])
def test_the_interval_of_repeated_runs_holds_the_true_ratio(runs: int) -> None:
    rng = random.Random(runs)
    held = 0
    for _ in range(2_000):
        pairs = []
        for _ in range(runs):
            hour = rng.gauss(0, 0.5)  # what both runs of a pair have in common
            pairs.append((3.0 * math.exp(hour + rng.gauss(0, 0.1)), math.exp(hour + rng.gauss(0, 0.1))))
        found = ratio_of_runs(pairs)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 3.0 <= found.high
    assert 0.93 <= held / 2_000 <= 0.97


def test_the_interval_of_one_run_holds_the_true_ratio() -> None:
    # Two figures that are known differently well, off to either side of the truth.
    rng = random.Random(1)
    z = NormalDist().inv_cdf(0.975)

    def figure(truth: float, error: float) -> Estimate:
        value = math.log(truth) + rng.gauss(0, error)
        return Estimate(math.exp(value), math.exp(value - z * error), math.exp(value + z * error))

    held = 0
    for _ in range(2_000):
        found = ratio(figure(30.0, 0.05), figure(10.0, 0.15))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 3.0 <= found.high
    assert 0.93 <= held / 2_000 <= 0.97
