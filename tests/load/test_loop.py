from __future__ import annotations

import socket
from time import perf_counter_ns

from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.loop import READ, Loop


def test_timers_are_served_in_order_and_never_early() -> None:
    loop = Loop()
    served: list[tuple[str, int]] = []
    now = perf_counter_ns()
    due = {"late": now + 3_000_000, "early": now + 1_000_000}
    for name, when in due.items():
        loop.at(when, lambda name=name: served.append((name, perf_counter_ns())))  # type: ignore[misc]  # a late bind
    loop.at(now + 5_000_000, loop.stop)
    loop.run()
    assert [name for name, _ in served] == ["early", "late"]
    assert all(at >= due[name] for name, at in served)
    loop.close()


def test_a_ready_socket_is_served_and_its_wait_is_counted() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        loop.add(ours.fileno(), READ, lambda _events: loop.stop())
        loop.run()
        assert loop.lag_quantile_ns(0.5) == loop.lag_quantile_ns(1.0) <= loop.lag_max_ns
        loop.remove(ours.fileno())
    loop.reset_lags()
    assert loop.lag_quantile_ns(0.5) == loop.lag_max_ns == 0
    loop.close()


def test_an_answer_that_comes_while_the_loop_is_busy_has_waited() -> None:
    loop = Loop()
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
    loop.close()


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
