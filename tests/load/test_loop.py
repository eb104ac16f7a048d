from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load import loop as module
from pytest_dsql.load.loop import READ, WRITE, Loop, NewPoller, Poll


@pytest.fixture(params=[NewPoller, Poll], ids=["own", "poll"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    monkeypatch.setattr(module, "NewPoller", request.param)
    loop = Loop()
    yield loop
    loop.close()


@dataclass
class InPhases:
    """Notes when it is served."""

    loop: Loop
    sock: socket.socket
    number: int
    log: list[tuple[str, int]]

    def on_ready(self, _events: int) -> None:
        self.sock.recv(1)
        self.log.append(("read", self.number))
        self.loop.arrived.append(self)

    def act(self) -> None:
        self.log.append(("act", self.number))
        self.loop.outbox.append(self)

    def dispatch(self) -> None:
        self.log.append(("send", self.number))
        self.loop.stop()


def test_what_is_ready_together_is_read_then_acted_on_then_sent(loop: Loop) -> None:
    log: list[tuple[str, int]] = []
    with ExitStack() as stack:
        for number in range(3):
            ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
            theirs.send(b"x")
            loop.add(ours.fileno(), READ, InPhases(loop, ours, number, log).on_ready)
        loop.run()
    assert [phase for phase, _ in log] == ["read"] * 3 + ["act"] * 3 + ["send"] * 3


def test_what_a_timer_posts_is_sent_before_the_loop_waits_again(loop: Loop) -> None:
    log: list[tuple[str, int]] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.at(0, lambda: loop.outbox.append(InPhases(loop, ours, 7, log)))
        loop.run()  # nothing else would end it
    assert log == [("send", 7)]


def test_an_answer_waits_for_the_others_sends(loop: Loop) -> None:
    def slow() -> None:
        until = perf_counter_ns() + 5_000_000
        while perf_counter_ns() < until:
            pass

    class Slow(InPhases):
        def dispatch(self) -> None:
            slow()
            super().dispatch()

    with ExitStack() as stack:
        for number in range(2):
            ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
            theirs.send(b"x")
            loop.add(ours.fileno(), READ, Slow(loop, ours, number, []).on_ready)
        loop.run()
    assert loop.lag_max_ns >= 5_000_000


def test_a_hang_up_is_told_as_what_was_watched(loop: Loop) -> None:
    seen: list[int] = []

    def told(events: int) -> None:
        seen.append(events)
        loop.stop()

    ours, theirs = socket.socketpair()
    with ours:
        loop.add(ours.fileno(), READ, told)
        theirs.close()
        loop.run()
        loop.change(ours.fileno(), READ | WRITE, told)
        loop.run()
        loop.remove(ours.fileno())
    assert seen == [READ, READ | WRITE]


def test_a_descriptor_that_takes_a_closed_ones_number_is_not_told_of_its_events(loop: Loop) -> None:
    told: list[str] = []
    pairs = [socket.socketpair(), socket.socketpair()]
    fresh: list[socket.socket] = []

    def first(number: int) -> Any:
        def called(_events: int) -> None:
            told.append("first")
            other = pairs[1 - number][0]
            if fresh or other.fileno() < 0:
                return
            taken = other.fileno()
            loop.remove(taken)
            other.close()
            fresh.extend(socket.socketpair())
            assert taken in [one.fileno() for one in fresh]
            for one in fresh:
                loop.add(one.fileno(), READ, lambda _events: told.append("fresh"))
            loop.stop()

        return called

    for number, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")
        loop.add(ours.fileno(), READ, first(number))
    loop.run()
    for one in [*fresh, *pairs[0], *pairs[1]]:
        one.close()
    assert "fresh" not in told


def test_timers_are_served_in_order_and_never_early(loop: Loop) -> None:
    served: list[tuple[str, int]] = []
    now = perf_counter_ns()
    due = {"late": now + 3_000_000, "early": now + 1_000_000}
    for name, when in due.items():
        loop.at(when, lambda name=name: served.append((name, perf_counter_ns())))  # type: ignore[misc]  # a late bind
    loop.at(now + 5_000_000, loop.stop)
    loop.run()
    assert [name for name, _ in served] == ["early", "late"]
    assert all(at >= due[name] for name, at in served)


def test_a_ready_socket_is_served_and_its_wait_is_counted(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        loop.add(ours.fileno(), READ, lambda _events: loop.stop())
        loop.run()
        assert loop.lag_quantile_ns(0.5) == loop.lag_quantile_ns(1.0) <= loop.lag_max_ns
        loop.remove(ours.fileno())
    loop.reset_lags()
    assert loop.lag_quantile_ns(0.5) == loop.lag_max_ns == 0


def test_an_answer_that_comes_while_the_loop_is_busy_has_waited(loop: Loop) -> None:
    ours, theirs = socket.socketpair()

    def busy() -> None:
        theirs.send(b"x")
        until = perf_counter_ns() + 5_000_000
        while perf_counter_ns() < until:
            pass

    def answered(_events: int) -> None:
        ours.recv(1)
        loop.stop()

    with ours, theirs:
        loop.add(ours.fileno(), READ, answered)
        for _ in range(20):  # a process that loses its core in the middle of the select looks as if it had waited
            loop.at(0, busy)
            loop.run()
        assert loop.lag_max_ns >= 5_000_000


@given(st.lists(st.integers(0, 10**8), max_size=20))
def test_a_timer_of_the_past_is_served_at_once(ages: list[int]) -> None:
    loop = Loop()
    served: list[int] = []
    for age in ages:
        loop.at(perf_counter_ns() - age, lambda: served.append(1))
    loop.at(perf_counter_ns(), loop.stop)
    loop.run()
    assert len(served) == len(ages)
    loop.close()
