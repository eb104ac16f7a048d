"""The embedded engine's books: differences of its own totals, priced as in its Region."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_dsql.cost.engine import EngineBooks
from pytest_dsql.cost.prices import Prices
from pytest_dsql.errors import EngineError
from pytest_dsql.load.cost import Dpu
from pytest_dsql.local.dpu.meter import DpuTotals


class Engine:
    """Totals of an engine that grow by what is given."""

    def __init__(self, *readings: DpuTotals | None) -> None:
        self._readings: Iterator[DpuTotals | None] = iter(readings)

    def dpu(self) -> DpuTotals:
        found = next(self._readings)
        if found is None:
            raise EngineError("it has ended")
        return found


def totals(compute: float | None = 0.0, read: float = 0.0, write: float = 0.0, again: float = 0.0) -> DpuTotals:
    return DpuTotals(compute, read, write, again, transactions=1, writing_transactions=1)


def test_a_cell_has_used_what_the_totals_grew_by() -> None:
    engine = Engine(totals(), totals(1.0, 2.0, 3.0), totals(1.5, 4.0, 8.0), totals(2.0, 5.0, 9.0))
    books = EngineBooks(engine.dpu, "us-east-1", Prices())
    books.admit("any")
    cost = books.end(books.begin(), "cell", None)
    assert cost is not None
    assert cost.parts == Dpu(0.5, 2.0, 5.0, 0.0)
    assert cost.dpu == pytest.approx(7.5)
    assert cost.usd == pytest.approx(7.5 * 8 / 1e6)
    assert (cost.estimated, cost.source) == (True, "engine")
    assert cost.began_s <= cost.ended_s
    assert books.close() == {}
    assert books.facts() == {
        "cost_dpu": 16.0,
        "cost_usd": pytest.approx(16 * 8 / 1e6),
        "cost_estimated": True,
        "cost_prices": "table of 2026-04-28",
        "usd_per_million_dpu": 8.0,
    }


def test_multi_region_writes_count() -> None:
    engine = Engine(totals(), totals(), totals(0.0, 1.0, 2.0, 2.0))
    books = EngineBooks(engine.dpu, "us-east-1", Prices())
    cost = books.end(books.begin(), "cell", None)
    assert cost is not None
    assert cost.dpu == 5.0


def test_a_region_without_a_price_has_dpu_only() -> None:
    engine = Engine(totals(), totals(), totals(1.0, 1.0, 1.0))
    books = EngineBooks(engine.dpu, "eu-central-1", Prices())
    cost = books.end(books.begin(), "cell", None)
    assert cost is not None
    assert (cost.dpu, cost.usd) == (3.0, None)


def test_totals_that_were_reset_meanwhile_say_nothing() -> None:
    engine = Engine(totals(), totals(5.0, 5.0, 5.0), totals(6.0, 0.1, 0.1))
    books = EngineBooks(engine.dpu, "us-east-1", Prices())
    assert books.end(books.begin(), "cell", None) is None


def test_an_engine_that_has_ended_says_nothing() -> None:
    books = EngineBooks(Engine(None, None, None, None).dpu, "us-east-1", Prices())
    assert books.end(books.begin(), "cell", None) is None
    assert books.facts() == {}
