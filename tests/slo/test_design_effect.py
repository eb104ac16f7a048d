"""The design effect: 1 for independent exceedances, the length of the runs for clustered ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.slo.design_effect import design_effect, design_effect_of_stretches


def test_nothing_over_is_worth_every_request() -> None:
    assert design_effect([], 10_000).effect == 1.0


def test_everything_over_is_worth_every_request() -> None:
    assert design_effect(range(500), 500).effect == 1.0


def test_one_exceedance_is_no_cluster() -> None:
    assert design_effect([4711], 10_000).effect == pytest.approx(1.0, abs=0.05)


def test_evenly_spread_exceedances_are_no_cluster() -> None:
    assert design_effect(range(0, 10_000, 100), 10_000).effect == 1.0


@pytest.mark.parametrize("run", [5, 20])
def test_runs_are_worth_one_request_each(run: int) -> None:
    rng = random.Random(run)
    n = 200_000
    starts = rng.sample(range(0, n, run), 2000 // run)
    over = sorted(start + step for start in starts for step in range(run))
    assert design_effect(over, n).effect == pytest.approx(run, rel=0.5)


def test_one_long_stall_leaves_one_event() -> None:
    """A second of stall in a cell of half a minute is one event, however many requests it hit."""
    assert design_effect(range(5000, 5100), 10_000).effect > 50


def test_short_cells_still_see_clusters() -> None:
    assert design_effect(range(100, 120), 200).effect > 10


def test_a_run_in_a_few_requests_is_one_event() -> None:
    """Batches of one or two requests are shorter than the run, and would take it for many."""
    assert design_effect(range(4, 9), 10).effect == 3.0
    assert design_effect((0, 2, 4, 6, 8), 10).effect < 1.5


def test_what_few_clusters_tell_is_taken_with_caution() -> None:
    """Clusters in one batch: how long others are nobody knows. In all batches: the mean is well known."""
    few = design_effect(range(5000, 5010), 10_000)
    many = design_effect([at * 50 + place for at in range(200) for place in range(10)], 10_000)
    assert few.cautious == pytest.approx(2 * few.effect - 1)
    assert many.effect <= many.cautious < 1.3 * many.effect
    assert design_effect(range(0, 10_000, 100), 10_000).cautious == 1.0


def test_too_few_requests_have_no_batches() -> None:
    assert design_effect([0], 7).effect == 1.0


def test_few_stretches_are_worth_one_request_each() -> None:
    """All that is known came in seven stretches, one of which was slow as a whole: that is one event of seven."""
    assert design_effect_of_stretches([(1000, 0)] * 6 + [(1000, 1000)]).cautious == 1000.0
    assert design_effect_of_stretches([(1, 0)] * 6 + [(1, 1)]).cautious == 1.0


@given(n=st.integers(1, 20_000), data=st.data())
def test_never_worth_more_than_it_is(n: int, data: st.DataObject) -> None:
    over = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=200)))
    found = design_effect(over, n)
    assert 1.0 <= found.effect <= found.cautious <= 2 * found.effect
