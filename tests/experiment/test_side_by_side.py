"""The same cells on several targets, in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pytest_dsql.experiment.capacity import Capacity
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.search import Bracket
from pytest_dsql.experiment.side_by_side import SideBySide
from pytest_dsql.load.cell import Cell
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.transaction import Mix
from tests.load.made_cells import cell, measurement, samples

SLO = Slo(reads=Latency(p95=ms(50)))


class Stub:
    """A load that measures at once; which cells it was asked for is in `asked`."""

    def __init__(self, target: str, asked: list[Any], slow_from: int = 1_000, rate: float | None = 100.0) -> None:
        self.target, self.asked, self.slow_from, self.rate = target, asked, slow_from, rate

    def run(self, number: int, measure: Callable[[], Cell]) -> Cell:
        self.asked.append((self.target, number))
        return measure()

    def closed(self, mix: object, *, connections: int) -> Cell:
        self.asked.append((self.target, connections))
        latency = 5.0 if connections < self.slow_from else 500.0
        return cell(measurement(samples("product_read", 600 * connections, latencies_ms=(latency,))))

    def capacity(self, mix: object, slo: Slo) -> Capacity:
        return Capacity(self.target, Bracket(self.rate, None, "none", 3, ()), ())


def beside(*loads: Stub) -> SideBySide:
    return SideBySide({load.target: cast(Load, load) for load in loads})


def test_another_target_begins_each_time() -> None:
    asked: list[Any] = []
    side_by_side = beside(*(Stub(name, asked) for name in "abc"))
    for count in (1, 2, 3, 4):
        measured = side_by_side.measure(lambda load, count=count: load.closed(MIX, connections=count))  # type: ignore[misc]
        assert list(measured) == ["a", "b", "c"]
    assert [name for name, _count in asked] == [*"abc", *"bca", *"cab", *"abc"]


def test_all_targets_are_run_once_before_any_is_run_twice() -> None:
    asked: list[Any] = []
    runs = beside(Stub("a", asked), Stub("b", asked)).repeat(2, lambda load: load.closed(MIX, connections=1))
    assert [one for one in asked if one != ("a", 1) and one != ("b", 1)] == [("b", 2), ("a", 2)]
    assert {target: len(several.cells) for target, several in runs.items()} == {"a": 2, "b": 2}


def test_what_a_target_carries_is_its_best_cell_that_meets_the_slo() -> None:
    explored = beside(Stub("a", []), Stub("b", [], slow_from=16), Stub("c", [], slow_from=1)).explore(MIX, SLO, (4, 16))
    rates = {target: rate for target, (rate, _cells) in explored.items()}
    cells = explored["a"][1]
    assert rates == {"a": cells[16].tps, "b": cells[4].tps, "c": None}
    assert list(cells) == [4, 16]


def test_the_reference_is_the_lowest_capacity() -> None:
    assert beside(Stub("a", [], rate=300.0), Stub("b", [], rate=200.0)).capacity(MIX, SLO)[0] == 200.0
    assert beside(Stub("a", [], rate=300.0), Stub("b", [], rate=None)).capacity(MIX, SLO)[0] is None


def test_without_a_target_there_is_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="no target"):
        SideBySide({})


MIX = cast(Mix, None)
