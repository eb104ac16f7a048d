"""Two hosts' clocks."""

from __future__ import annotations

import pytest

from pytest_dsql.load.clocks import ClockDifference, compare
from pytest_dsql.load.measurement import ConnectStats


def test_a_clock_that_is_ahead_is_found_so() -> None:
    ours = iter([0, 100, 1_000, 1_100] * 5)
    theirs = iter([5_050, 6_050] * 5)
    found = compare(lambda: next(theirs), lambda: next(ours))
    assert found.ahead_ns == 5_000
    assert found.uncertainty_ns == 50


def test_the_fastest_answer_counts() -> None:
    # The second question took 10 instead of 100, and its answer is from the middle.
    ours = iter([0, 100, 200, 210, *(x for n in range(8) for x in (1_000 * (n + 1), 1_000 * (n + 1) + 100))])
    theirs = iter([90, 205, *(1_000 * (n + 1) + 95 for n in range(8))])
    found = compare(lambda: next(theirs), lambda: next(ours))
    assert (found.ahead_ns, found.uncertainty_ns) == (0, 5)


def test_times_travel_between_the_clocks() -> None:
    clock = ClockDifference(ahead_ns=1_000, uncertainty_ns=1)
    assert clock.to_theirs(("start", 5)) == ("start", 1_005)
    assert clock.to_theirs(("stop",)) == ("stop",)
    stats = ConnectStats()
    assert clock.to_ours(("decided", stats, 1_007)) == ("decided", stats, 7)


@pytest.mark.parametrize("message", [("alive", 3), ("counts", b"packed"), ("rtt", [1, 2]), ("failed", ValueError("x"))])
def test_what_holds_no_times_is_left_alone(message: tuple[object, ...]) -> None:
    assert ClockDifference(1_000, 1).to_ours(message) is message
