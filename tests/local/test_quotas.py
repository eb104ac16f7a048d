"""How many connections a cluster takes."""

from __future__ import annotations

from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.limits import DEFAULT, Limits
from pytest_dsql.local.quotas import NotTaken, Quotas


class Case:
    """Quotas with a clock that shows the machine's time and what it was moved by."""

    def __init__(self, limits: Limits = DEFAULT, *, asleep: bool = False) -> None:
        self.clock = EngineClock()
        self.limits = limits
        self.quotas = Quotas(self.clock, limits, asleep=asleep)

    def taken(self, attempts: int) -> int:
        return sum(self.quotas.take(self.limits) is None for _ in range(attempts))


def test_a_burst_takes_what_is_in_the_bucket() -> None:
    case = Case(Limits(connect_burst=10, connect_rate_per_s=0))
    assert case.taken(15) == 10
    assert case.quotas.take(case.limits) is NotTaken.RATE
    assert case.quotas.open == 10


def test_the_bucket_fills_at_the_rate_up_to_its_size() -> None:
    case = Case(Limits(connect_burst=50, connect_rate_per_s=0.5))
    assert case.taken(60) == 50
    case.clock.move(20)
    assert case.taken(60) == 10
    case.clock.move(1_000)
    assert case.taken(60) == 50


def test_a_refused_connection_takes_nothing() -> None:
    case = Case(Limits(connections=2, connect_burst=3, connect_rate_per_s=0))
    assert case.taken(5) == 2
    assert case.quotas.take(case.limits) is NotTaken.OPEN
    case.quotas.closed()
    assert case.quotas.take(case.limits) is None, "the refusals took nothing from the bucket"
    case.quotas.closed()
    assert case.quotas.take(case.limits) is NotTaken.RATE


def test_dsqls_limits_are_in_force_at_once() -> None:
    assert 1_000 <= Case().taken(1_400) < 1_200


def test_filling_is_for_the_limits_that_hold() -> None:
    case = Case(Limits(connect_burst=5, connect_rate_per_s=0))
    case.limits = Limits(connect_burst=7, connect_rate_per_s=0)
    case.quotas.fill(case.limits)
    assert case.taken(10) == 7


def test_a_cluster_wakes_some_time_after_the_first_attempt() -> None:
    case = Case(Limits(wake_s=5_000), asleep=True)
    case.clock.move(100_000)
    assert case.quotas.take(case.limits) is NotTaken.WAKING
    case.clock.move(4_000)
    assert case.quotas.take(case.limits) is NotTaken.WAKING
    case.clock.move(1_000)
    assert case.quotas.take(case.limits) is None
    assert case.quotas.take(case.limits) is None


def test_a_sleeping_cluster_refuses_without_counting() -> None:
    case = Case(Limits(wake_s=5, connect_burst=2, connect_rate_per_s=0), asleep=True)
    case.taken(5)
    case.quotas.sleep(asleep=False)
    assert case.taken(5) == 2


def test_a_clock_that_is_set_back_takes_nothing_out() -> None:
    case = Case(Limits(connect_burst=2, connect_rate_per_s=1e-9))
    case.clock.move(1_000)
    assert case.taken(1) == 1
    case.clock.reset()
    assert case.taken(2) == 1
