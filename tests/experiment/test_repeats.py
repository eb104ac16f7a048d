"""Several runs of one cell, judged together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_dsql.errors import Inconclusive, Invalid, SloMissed
from pytest_dsql.experiment.repeats import Repeats
from pytest_dsql.load.cell import Cell
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.slo.objectives import Latency, Slo, ms
from tests.load.made_cells import HEALTHY, cell, good_measurement, measurement, samples

SLO = Slo(reads=Latency(p99=ms(100)))


def good() -> Cell:
    return cell(measurement(samples("product_read", 6000)))


def slow() -> Cell:
    return cell(measurement(samples("product_read", 6000, latencies_ms=(5.0, 400.0))))


def tiny() -> Cell:
    return cell(measurement(samples("product_read", 20)))


def unhealthy() -> Cell:
    measured = measurement(samples("product_read", 6000, latencies_ms=(5.0, 400.0)))
    measured.generator = replace(HEALTHY, cpu=0.99)
    return cell(measured)


def test_three_runs_that_pass_are_a_pass() -> None:
    runs = Repeats([good(), good(), good()])
    runs.assert_meets(SLO)
    assert not runs.provisional
    assert runs.verdict(SLO).reasons[0] == "All 3 runs passed."


def test_two_runs_are_provisional() -> None:
    runs = Repeats([good(), good()])
    runs.assert_meets(SLO)
    assert runs.provisional
    assert "Provisional" in runs.verdict(SLO).reasons[0]


@pytest.mark.parametrize(
    ("cells", "error"),
    [
        ([good, slow, good], SloMissed),
        ([good, tiny, good], Inconclusive),
        ([good, unhealthy, good], Invalid),
        ([unhealthy, slow, tiny], SloMissed),
        ([tiny, unhealthy, good], Invalid),
    ],
)
def test_one_run_that_does_not_pass_decides(cells: list[Callable[[], Cell]], error: type[AssertionError]) -> None:
    runs = Repeats([make() for make in cells])
    with pytest.raises(error, match="did not pass"):
        runs.assert_meets(SLO)


def test_the_text_says_which_run_and_how_far_they_were_apart() -> None:
    fast = cell(measurement(samples("product_read", 6000, latencies_ms=(4.0,))))
    with pytest.raises(
        SloMissed, match=r"1 of 2 runs did not pass \(run 2\)[\s\S]*product_read p99 4\.00 to 400\.00 ms"
    ):
        Repeats([fast, slow()]).assert_meets(SLO)


def test_the_spread_is_the_lowest_and_the_highest() -> None:
    runs = Repeats([cell(measurement(samples("product_read", 600, latencies_ms=(x,)))) for x in (7.0, 3.0, 5.0)])
    assert runs.spread("product_read") == (3.0, 7.0)
    assert runs.tps_spread == (75.0, 75.0)


def test_a_run_without_an_answer_has_no_spread() -> None:
    nothing = cell(measurement(samples("product_read", 60, outcomes=(Outcome.FAILED,))))
    low, high = Repeats([good(), nothing]).spread("product_read")
    assert math.isnan(low)
    assert math.isnan(high)


def test_runs_of_different_cells_are_not_repeats() -> None:
    with pytest.raises(ValueError, match="the same transactions"):
        Repeats([good(), cell(good_measurement())])


def test_no_runs_are_no_data() -> None:
    with pytest.raises(ValueError, match="no data never passes"):
        Repeats([])
