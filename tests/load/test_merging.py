"""Two measurements of one cell become one, with nothing lost and the order kept."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.cost import Cost, Dpu
from pytest_dsql.load.measurement import Arrival, ConnectStats, Outcome
from pytest_dsql.load.merging import merge_measurements
from tests.load.made_cells import HEALTHY, connect_stats, measurement, samples

outcomes = st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=10)


@given(first=st.integers(0, 50), second=st.integers(0, 50), ends=outcomes, duration=st.floats(0.1, 20), later=outcomes)
def test_nothing_is_lost_and_the_order_is_kept(
    first: int, second: int, ends: list[Outcome], duration: float, later: list[Outcome]
) -> None:
    one = measurement(samples("t", first, duration_s=duration, outcomes=ends), duration_s=duration)
    two = measurement(samples("t", second, duration_s=8.0, outcomes=later))
    merged = merge_measurements(one, two)
    both = merged.samples["t"]
    assert len(both) == merged.arrivals == first + second
    for outcome in Outcome:
        assert both.count(outcome) == one.samples["t"].count(outcome) + two.samples["t"].count(outcome)
    assert all(earlier <= after for earlier, after in pairwise(both.intended_ns))
    columns = (both.latency_ns, both.wait_ns, both.service_ns, both.backoff_ns, both.attempts)
    assert {len(column) for column in columns} == {first + second}
    assert merged.duration_s == one.duration_s + two.duration_s
    assert merged.committed["t"] == one.committed["t"] + two.committed["t"]


def test_neither_part_is_changed() -> None:
    one, two = measurement(samples("t", 3)), measurement(samples("t", 4))
    merge_measurements(one, two)
    assert (len(one.samples["t"]), len(two.samples["t"])) == (3, 4)


def test_the_second_window_begins_where_the_first_ended() -> None:
    merged = merge_measurements(measurement(samples("t", 2)), measurement(samples("t", 2)))
    assert list(merged.samples["t"].intended_ns) == [0, 4_000_000_000, 8_000_000_000, 12_000_000_000]


def test_errors_add_up() -> None:
    one = measurement(samples("t", 3, errors={"40001": 2}))
    two = measurement(samples("t", 3, errors={"40001": 1, "connection": 5}))
    assert merge_measurements(one, two).samples["t"].errors == {"40001": 3, "connection": 5}


def test_the_generator_is_as_healthy_as_in_the_worse_part() -> None:
    one = measurement(samples("t", 1), generator=replace(HEALTHY, cpu=0.9, loop_lag_p99_ns=1, runqueue_wait=None))
    two = measurement(samples("t", 1), generator=replace(HEALTHY, cpu=0.2, loop_lag_p99_ns=7, schedule_lag_p99_ns=3))
    worse = merge_measurements(one, two).generator
    assert (worse.cpu, worse.loop_lag_p99_ns, worse.runqueue_wait, worse.schedule_lag_p99_ns) == (0.9, 7, 0.02, 3)


def test_connections_add_up() -> None:
    one = measurement(samples("t", 1), connect=connect_stats(3, {"53400": 1}))
    two = measurement(samples("t", 1), connect=ConnectStats(2, 2, phases_ns={"tcp": array("q", [5, 6])}))
    merged = merge_measurements(one, two).connect
    assert (merged.attempted, merged.succeeded, merged.refused) == (6, 5, {"53400": 1})
    assert {name: len(values) for name, values in merged.phases_ns.items()} == {"tls": 3, "total": 3, "tcp": 2}


def test_an_interruption_stays() -> None:
    one, two = measurement(samples("t", 1)), measurement(samples("t", 1), interrupted="worker 1 died")
    assert merge_measurements(one, two).interrupted == "worker 1 died"


@pytest.mark.parametrize("other", [{"connections": 8}, {"arrival": Arrival("churn")}])
def test_other_cells_are_not_merged(other: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="same cell"):
        merge_measurements(measurement(samples("t", 1)), measurement(samples("t", 1), **other))


def test_cells_of_other_transactions_are_not_merged() -> None:
    with pytest.raises(ValueError, match="same cell"):
        merge_measurements(measurement(samples("t", 1)), measurement(samples("u", 1)))


@pytest.mark.parametrize("simulated", [(True, False), (False, True), (False, False)])
def test_a_cell_was_simulated_when_one_part_of_it_was(simulated: tuple[bool, bool]) -> None:
    one, two = (replace(measurement(samples("t", 3)), simulated=part) for part in simulated)
    assert merge_measurements(one, two).simulated == any(simulated)


def test_the_cost_of_two_stretches_adds_up() -> None:
    first = Cost(100.0, 110.0, 5.0, Dpu(1.0, 2.0, 2.0), 0.5, False, "cloudwatch")
    second = Cost(110.0, 130.0, 7.0, Dpu(3.0, 2.0, 2.0), 0.25, True, "cloudwatch")
    merged = merge_measurements(measurement(cost=first), measurement(cost=second))
    assert merged.cost == Cost(100.0, 130.0, 12.0, Dpu(4.0, 4.0, 4.0), 0.75, True, "cloudwatch")
    assert merge_measurements(measurement(cost=first), measurement()).cost is None
