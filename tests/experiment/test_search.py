"""The search for the highest passing rate, against systems whose capacity is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.experiment.search import SearchPlan, search
from pytest_dsql.slo.verdict import Outcome

Probe = Callable[[float], Outcome]


def carries(capacity: float, above: Outcome = "fail") -> Probe:
    return lambda rate: "pass" if rate <= capacity else above


def told(*outcomes: Outcome) -> Probe:
    """A system that answers these, one after the other."""
    answers: Iterator[Outcome] = iter(outcomes)
    return lambda _rate: next(answers)


@given(st.floats(10, 20_000), st.floats(5, 5_000))
def test_the_bracket_holds_the_capacity_and_is_narrow(capacity: float, start: float) -> None:
    found = search(carries(capacity), SearchPlan(start=start, most=30_000))
    if found.low is None:
        assert capacity < start
        return
    assert found.low <= capacity
    if found.high is not None:
        assert capacity < found.high <= found.low * 1.1
        assert found.limit == "database"


def test_a_search_from_above_comes_down() -> None:
    found = search(carries(100), SearchPlan(start=1_000, most=2_000))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 100 < found.high


def test_a_system_that_carries_nothing_ends_the_search() -> None:
    found = search(carries(0), SearchPlan(start=640, most=1_000))
    assert found.low is None
    assert found.high == 10
    assert found.passes == 0


def test_a_search_for_want_of_evidence_does_not_go_where_there_is_less() -> None:
    found = search(lambda _rate: "inconclusive", SearchPlan(start=640, most=1_000))
    assert [trial.rate for trial in found.trials] == [640, 640, 320, 320]
    assert (found.low, found.high, found.limit) == (None, 320, "undecided")
    near = search(told("inconclusive", "inconclusive", "pass"), SearchPlan(start=100, most=200, precision=1.0))
    assert (near.low, near.high, near.limit) == (50, 100, "undecided")


def test_the_highest_rate_allowed_is_no_limit_of_the_database() -> None:
    found = search(carries(1e9), SearchPlan(start=10, most=100))
    assert (found.low, found.high, found.limit) == (100, None, "none")


@pytest.mark.parametrize(("above", "limit"), [("invalid", "generator"), ("inconclusive", "undecided")])
def test_what_ended_the_search_is_told_apart(above: Outcome, limit: str) -> None:
    found = search(carries(100, above), SearchPlan(start=80, most=1_000))
    assert found.limit == limit


def test_the_generators_limit_is_not_tried_again() -> None:
    found = search(carries(100, "invalid"), SearchPlan(start=100, most=1_000, precision=1.0))
    assert [trial.rate for trial in found.trials] == [100, 200]


def test_one_bad_run_is_tried_again_and_forgiven() -> None:
    found = search(told("pass", "fail", "pass", "pass"), SearchPlan(start=100, most=200))
    assert (found.low, found.limit) == (200, "none")
    assert [trial.rate for trial in found.trials] == [100, 200, 200, 200]


def test_two_bad_runs_of_three_are_a_failure() -> None:
    found = search(told("pass", "fail", "pass", "fail"), SearchPlan(start=100, most=200, precision=1.0))
    assert (found.low, found.high, found.limit) == (100, 200, "database")


def test_three_different_outcomes_decide_nothing() -> None:
    found = search(told("pass", "fail", "inconclusive", "pass"), SearchPlan(start=100, most=200, precision=1.0))
    assert (found.low, found.high, found.limit) == (100, 200, "undecided")


def test_the_rate_that_is_found_passes_as_often_as_asked() -> None:
    found = search(carries(100), SearchPlan(start=100, most=100, repeats=3))
    assert (found.low, found.passes) == (100, 3)


def test_a_rate_that_fails_in_a_repeat_gives_way_to_the_next_lower_one() -> None:
    plan = SearchPlan(start=100, most=200, repeats=2)
    found = search(told("pass", "pass", "fail", "pass"), plan)
    assert (found.low, found.high, found.limit, found.passes) == (100, 200, "database", 2)


def test_when_no_rate_is_left_the_search_goes_on_below() -> None:
    plan = SearchPlan(start=100, most=200, precision=1.0, repeats=2)
    found = search(told("pass", "fail", "fail", "invalid", "pass", "pass"), plan)
    assert [trial.rate for trial in found.trials] == [100, 200, 200, 100, 50, 50]
    assert (found.low, found.high, found.limit, found.passes) == (50, 100, "generator", 2)


def test_a_search_ends_also_where_nothing_is_confirmed() -> None:
    seen: dict[float, int] = {}

    def once(rate: float) -> Outcome:
        seen[rate] = seen.get(rate, 0) + 1
        return "pass" if seen[rate] == 1 else "fail"

    found = search(once, SearchPlan(start=100, most=200, repeats=3))
    assert (found.low, found.limit) == (None, "database")
    assert found.high is not None
    assert found.high < 100 / 32


def test_a_noisy_knee_is_found_all_the_same() -> None:
    """A tenth of the runs below the capacity go wrong, as they do on a machine with neighbours."""
    chance = random.Random(7)
    found_rates = []
    for _ in range(200):
        found = search(
            lambda rate: "pass" if rate <= 1_000 and chance.random() > 0.1 else "fail",
            SearchPlan(start=100, most=10_000),
        )
        assert found.low is not None
        assert found.low <= 1_000
        found_rates.append(found.low)
    assert sum(rate >= 800 for rate in found_rates) > 160


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 0.0},
        {"start": 200.0},
        {"growth": 1.0},
        {"precision": 0.0},
        {"repeats": 0},
        {"most": float("inf")},
        {"start": float("nan")},
    ],
)
def test_what_cannot_be_searched_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a search"):
        SearchPlan(**({"start": 1.0, "most": 100.0} | wrong))  # type: ignore[arg-type]
