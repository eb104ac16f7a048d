"""Schedules of open loop."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest

from pytest_dsql.load.arrivals import Schedule, schedule_of
from pytest_dsql.load.measurement import Arrival

POISSON = Arrival("poisson", 200.0)


def shares(arrival: Arrival, workers: int, *, seed: int = 1, length_s: float = 50.0) -> list[Schedule]:
    return [
        schedule_of(arrival, [0.7, 0.3], seed=seed, length_s=length_s, worker=worker, workers=workers)
        for worker in range(workers)
    ]


def together(parts: list[Schedule]) -> list[tuple[int, int]]:
    return sorted(pair for part in parts for pair in zip(part.after_ns, part.transactions, strict=True))


@pytest.mark.parametrize("arrival", [POISSON, Arrival("constant", 200.0)])
def test_the_workers_make_up_the_same_arrivals_however_many_they_are(arrival: Arrival) -> None:
    assert together(shares(arrival, 3)) == together(shares(arrival, 1))


def test_the_seed_decides() -> None:
    assert shares(POISSON, 1, seed=1) == shares(POISSON, 1, seed=1)
    assert shares(POISSON, 1, seed=1) != shares(POISSON, 1, seed=2)


def test_a_constant_rate_is_constant() -> None:
    (part,) = shares(Arrival("constant", 4.0), 1, length_s=1.0)
    assert part.after_ns == array("q", [0, 250_000_000, 500_000_000, 750_000_000])


def test_poisson_arrivals_have_the_rate_and_gaps_that_vary_as_much_as_their_mean() -> None:
    (part,) = shares(POISSON, 1, length_s=200.0)
    # 40,000 arrivals: the standard deviation of their number, and of both figures below, is half a percent.
    assert len(part.after_ns) == pytest.approx(40_000, rel=0.025)
    gaps = [after - before for before, after in pairwise(part.after_ns)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)


def test_transactions_come_in_their_shares() -> None:
    (part,) = shares(POISSON, 1, length_s=100.0)
    assert part.transactions.count(1) / len(part.transactions) == pytest.approx(0.3, abs=0.02)


def test_nothing_arrives_at_or_after_the_end() -> None:
    (part,) = shares(Arrival("constant", 10.0), 1, length_s=1.0)
    assert len(part.after_ns) == 10


@pytest.mark.parametrize("arrival", [POISSON, Arrival("constant", 200.0)])
def test_a_schedule_written_out_bit_by_bit_is_the_same(arrival: Arrival) -> None:
    [whole] = shares(arrival, 1)
    given = {"seed": 1, "length_s": 50.0, "worker": 0, "workers": 1}
    schedule = schedule_of(arrival, [0.7, 0.3], **given, until_s=2.0)  # type: ignore[arg-type]  # as the parameters
    times, transactions, longest = array("q"), array("H"), 0
    for second in range(3, 60):
        schedule.write_out(second * 1_000_000_000)
        longest = max(longest, len(schedule.after_ns))
        times.extend(schedule.after_ns)
        transactions.extend(schedule.transactions)
        schedule.forget(len(schedule.after_ns))
        assert schedule.complete or times[-1] >= second * 1_000_000_000
    assert schedule.complete
    assert (times, transactions) == (whole.after_ns, whole.transactions)
    assert longest < 1_000
