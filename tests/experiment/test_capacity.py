"""What a search found, as its test sees it."""

from __future__ import annotations

import math

import pytest

from pytest_dsql.errors import Inconclusive, Invalid, SloMissed
from pytest_dsql.experiment.capacity import Capacity, Point, connections_for, reference_rate
from pytest_dsql.experiment.search import Bracket, Limit, Trial
from pytest_dsql.load.statistics import LatencySummary
from pytest_dsql.slo.objectives import Latency, Slo, ms


def found(low: float | None, high: float | None, limit: Limit, passes: int = 3) -> Capacity:
    summary = LatencySummary(n=1_000, p50_ms=2.0, p95_ms=5.0, p99_ms=9.0, p999_ms=12.0, max_ms=20.0, mean_ms=3.0)
    point = Point(low or 1.0, "pass", 99.0, {"product_read": summary}, "test#1")
    return Capacity("local", Bracket(low, high, limit, passes, (Trial(low or 1.0, "pass"),)), (point,))


def test_a_database_that_carries_it_passes() -> None:
    found(100, 110, "database").assert_at_least(100)


@pytest.mark.parametrize(
    ("low", "high", "limit", "error"),
    [
        (100, 110, "database", SloMissed),
        (100, 500, "database", Inconclusive),  # the bracket is too wide to say
        (100, 110, "generator", Invalid),
        (100, 110, "undecided", Inconclusive),
        (100, None, "none", Inconclusive),
        (None, 10, "database", SloMissed),
    ],
)
def test_what_falls_short_says_why(
    low: float | None, high: float | None, limit: Limit, error: type[AssertionError]
) -> None:
    with pytest.raises(error, match=r"not at least 120\.0/s"):
        found(low, high, limit).assert_at_least(120)


def test_a_failure_that_was_outvoted_is_told() -> None:
    trials = [Trial(100, "fail"), Trial(100, "pass"), Trial(100, "pass"), Trial(110, "fail")]
    assert Capacity("local", Bracket(100, 110, "database", 2, trials), ()).describe().endswith("passed 2 of 3 times")


def test_only_a_database_that_failed_carries_less_than_what_was_tried() -> None:
    assert found(None, 10, "database").describe() == "below 10.0/s"
    reasons: list[tuple[Limit, str]] = [("generator", "the generator or its machine"), ("undecided", "little evidence")]
    for limit, why in reasons:
        text = found(None, 10, limit).describe()
        assert "below" not in text
        assert why in text


def test_the_text_has_the_curve() -> None:
    with pytest.raises(SloMissed, match=r"100\.0 +99\.0 +2\.00 +5\.00 +9\.00 +pass"):
        found(100, 110, "database").assert_at_least(110)


def test_only_the_database_gives_an_upper_end() -> None:
    assert found(100, 110, "database").interval == (100, 110)
    assert found(100, 110, "generator").interval == (100, math.inf)
    assert found(100, 110, "generator").at_least
    assert not found(100, 110, "database").at_least


def test_fewer_than_three_passes_are_provisional() -> None:
    assert found(100, 110, "database", passes=2).provisional
    assert "provisional" in found(100, 110, "database", passes=2).describe()
    assert not found(100, 110, "database", passes=3).provisional


def test_the_reference_rate_is_the_lowest_targets() -> None:
    assert reference_rate([found(100, 110, "database"), found(80, 90, "database")]) == 80
    assert reference_rate([found(100, 110, "database"), found(None, 10, "database")]) is None
    assert reference_rate([]) is None


def test_connections_run_out_only_when_the_database_is_too_slow() -> None:
    slo = Slo(reads=Latency(p99=ms(100)), writes=Latency(p99=ms(200)))
    assert connections_for(1_000, slo) == 240
    assert connections_for(1, slo) == 16
    assert connections_for(30_000, slo) == 512
