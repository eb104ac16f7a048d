"""The rate of successes, judged by the spread of its time slices."""

from __future__ import annotations

import math
import random

import pytest

from pytest_dsql.slo.throughput import judge_rate, margin_tps, student_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"), [(0.99, 19, 2.5395), (0.995, 19, 2.8609), (0.99, 10, 2.7638)]
)
def test_student_quantiles_are_the_tables(probability: float, degrees: int, expected: object) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("minimum", "expected"), [(900, "pass"), (1100, "fail"), (1000, "inconclusive"), (1001, "inconclusive")]
)
def test_the_margin_decides(minimum: float, expected: object) -> None:
    successes = [980, 1020] * 10
    assert judge_rate(successes, 20.0, minimum, 0.01) == expected


def test_a_perfectly_even_rate_meets_itself() -> None:
    assert judge_rate([100] * 20, 20.0, 100, 0.01) == "pass"


def test_no_window_decides_nothing() -> None:
    assert judge_rate([], 0.0, 100, 0.01) == "inconclusive"
    assert judge_rate([5], 1.0, 1, 0.01) == "inconclusive"


def test_the_margin_shrinks_with_the_window() -> None:
    rng = random.Random(1)
    short = [rng.randrange(90, 110) for _ in range(20)]
    assert margin_tps([10 * one for one in short], 200.0, 0.01) == pytest.approx(margin_tps(short, 20.0, 0.01))
    assert margin_tps(short * 4, 80.0, 0.01) < margin_tps(short, 20.0, 0.01)


def wandering(rng: random.Random, alike: float) -> list[int]:
    """Slices around 1,000 whose neighbours correlate so much."""
    found, at = [], rng.gauss(0, 1)
    for _ in range(20):
        found.append(round(1000 + 100 * at))
        at = alike * at + math.sqrt(1 - alike**2) * rng.gauss(0, 1)
    return found


@pytest.mark.parametrize(("alike", "most"), [(0.3, 0.025), (0.6, 0.04)])
def test_a_rate_that_wanders_is_known_less_well(alike: float, most: float) -> None:
    """Slices taken for independent gave 4 % and 12 % false verdicts of each kind here."""
    rng = random.Random(f"wandering {alike}")
    trials = 3000
    wrong = [judge_rate(wandering(rng, alike), 20.0, 1000, 0.01) for _ in range(trials)]
    assert wrong.count("pass") / trials < most
    assert wrong.count("fail") / trials < most


@pytest.mark.parametrize("expected", [1, 2, 5, 20])
def test_a_few_successes_less_than_expected_are_no_fail(expected: int) -> None:
    """None where one was expected is no rare event; the spread of nothing is nothing."""
    rng = random.Random(f"few {expected}")
    trials = 2000
    wrong = 0
    for _ in range(trials):
        slices = [0] * 20
        for _ in range(binomial_draw(rng, 100, expected / 100)):
            slices[rng.randrange(20)] += 1
        wrong += judge_rate(slices, 10.0, expected / 10, 0.01) == "fail"
    assert wrong / trials <= 0.02


def binomial_draw(rng: random.Random, n: int, share: float) -> int:
    return sum(rng.random() < share for _ in range(n))


def test_nothing_where_much_was_promised_is_a_fail() -> None:
    assert judge_rate([0] * 20, 10.0, 10, 0.01) == "fail"


def test_false_verdicts_at_the_edge_are_as_rare_as_the_level() -> None:
    rng = random.Random(20261130)
    trials = 4000
    wrong = {"pass": 0, "fail": 0, "inconclusive": 0}
    for _ in range(trials):
        successes = [round(rng.gauss(1000, 60)) for _ in range(20)]
        wrong[judge_rate(successes, 20.0, 1000, 0.01)] += 1
    assert wrong["pass"] / trials < 0.02
    assert wrong["fail"] / trials < 0.02
