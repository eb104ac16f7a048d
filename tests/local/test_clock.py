"""The engine's clock."""

from __future__ import annotations

import time

import pytest

from pytest_dsql.local.clock import EngineClock


def test_shows_the_machines_time_until_it_is_moved() -> None:
    before = time.time()
    assert before <= EngineClock().now() <= time.time()


def test_moves_forward_only() -> None:
    clock = EngineClock()
    clock.move(3_600)
    assert clock.now() > time.time() + 3_599
    for seconds in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="can't be moved"):
            clock.move(seconds)
    assert clock.moved_s == 3_600


def test_tells_of_moves_until_told_to_stop() -> None:
    clock, told = EngineClock(), list[float]()
    forget = clock.on_move(lambda: told.append(clock.moved_s))
    clock.move(5)
    clock.reset()
    forget()
    forget()
    clock.move(7)
    assert told == [5, 0]


def test_tells_what_it_showed_at_a_time_of_the_machine() -> None:
    clock, start = EngineClock(), time.time()
    clock.move(100)
    clock.move(1_000)
    assert clock.at(start - 1) == start - 1
    assert clock.at(time.time() + 1) > start + 1_100
    clock.reset()
    assert clock.at(start + 5) == start + 5
