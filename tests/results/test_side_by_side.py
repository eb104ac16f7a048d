"""Which cells of a file are compared with which."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.load.measurement import Arrival
from pytest_dsql.results.cell import cell_dict
from pytest_dsql.results.names import id_on, id_without
from pytest_dsql.results.side_by_side import side_by_side
from tests.load.made_cells import cell, measurement, samples


@pytest.mark.parametrize(
    ("test", "on"),
    [
        ("a/test_b.py::test_it", "a/test_b.py::test_it[local]"),
        ("a/test_b.py::test_it[16-x]", "a/test_b.py::test_it[local-16-x]"),
    ],
)
def test_a_target_goes_into_an_id_and_out_again(test: str, on: str) -> None:
    assert id_on(test, "local") == on
    assert id_without(on, "local") == test
    assert id_without(f"{on}#2", "local") == f"{test}#2"
    assert id_without(test, "local") == test


def test_a_parameter_that_begins_like_a_target_stays() -> None:
    assert id_without("test_it[locality-1]", "local") == "test_it[locality-1]"


def made(target: str, slowness: float, number: int = 1, repeat: int = 1, **changes: Any) -> dict[str, Any]:
    suffix = "" if number == 1 else f"#{number}"
    name = f"test_shop.py::test_orders[{target}-4]{suffix}"
    latencies = tuple(slowness * (1 + index / 100) for index in range(100))
    violations = changes.pop("violations", 0)
    measured = measurement(samples("product_read", 6000, latencies_ms=latencies), **changes)
    return cell_dict(cell(measured, id=name, target=target, repeat=repeat, invariants={"stock": violations}))


def compared(*cells: dict[str, Any]) -> dict[str, Any] | None:
    return side_by_side({"targets": [{"name": "local"}, {"name": "attach"}], "cells": cells})


def test_one_target_alone_is_compared_with_nothing() -> None:
    assert side_by_side({"targets": [{"name": "local"}], "cells": [made("local", 1.0)]}) is None
    assert compared(made("local", 1.0)) is None


def test_a_cell_is_compared_with_the_same_on_the_first_target() -> None:
    found = compared(made("attach", 3.0), made("local", 1.0))
    assert found is not None
    assert found["against"] == "local"
    by_metric = {one["metric"]: one for one in found["ratios"]}
    assert list(by_metric) == ["tps", "product_read p50", "product_read p95", "product_read p99"]
    assert by_metric["tps"]["ratio"] == pytest.approx(1.0)
    p95 = by_metric["product_read p95"]
    assert (p95["cell"], p95["target"], p95["runs"]) == ("test_shop.py::test_orders[4]", "attach", 1)
    assert p95["ratio"] == pytest.approx(3.0)
    assert p95["low"] < 3.0 < p95["high"]


def test_runs_are_compared_pair_by_pair_and_other_cells_of_the_test_apart() -> None:
    cells = [
        made(target, slowness * (2 if kind else 1) * (1 + repeat / 10), number=3 * kind + repeat, repeat=repeat)
        for kind in (0, 1)
        for repeat in (1, 2, 3)
        for target, slowness in (("local", 1.0), ("attach", 3.0 + kind))
    ]
    found = compared(*cells)
    assert found is not None
    p95 = {one["cell"]: one for one in found["ratios"] if one["metric"] == "product_read p95"}
    assert list(p95) == ["test_shop.py::test_orders[4]", "test_shop.py::test_orders[4]#2"]
    first, second = p95.values()
    assert (first["runs"], first["ratio"], second["ratio"]) == (3, pytest.approx(3.0), pytest.approx(4.0))


def test_what_was_measured_at_another_rate_is_not_compared() -> None:
    """A search for the capacity goes up as far as each target carries: its third cell is not the other's third."""

    def at(target: str, rate: float, slowness: float, number: int) -> dict[str, Any]:
        return made(target, slowness, number, arrival=Arrival("poisson", rate), connections=round(rate))

    local = [at("local", rate, 1.0, number) for number, rate in enumerate((100.0, 200.0, 400.0, 283.0), start=1)]
    attach = [at("attach", rate, 3.0, number) for number, rate in enumerate((100.0, 200.0, 200.0, 141.0), start=1)]
    found = compared(*local, *attach)
    assert found is not None
    assert {one["cell"] for one in found["ratios"]} == {f"test_shop.py::test_orders[4]{end}" for end in ("", "#2")}
    assert compared(local[2], attach[3]) is None


def test_a_void_cell_is_compared_with_nothing() -> None:
    assert compared(made("local", 1.0), made("attach", 3.0, violations=2)) is None
    assert compared(made("local", 1.0, violations=1), made("attach", 3.0)) is None


def test_what_the_generator_measured_of_itself_is_compared_with_nothing() -> None:
    """A miss while the generator was at its limit says nothing about the database, so neither does its ratio."""
    limited = made("attach", 90.0)
    assert compared(made("local", 1.0), limited) is not None
    limited["verdict"]["outcome"] = "invalid"
    assert compared(made("local", 1.0), limited) is None


def test_a_run_that_one_target_lacks_does_not_shift_the_others() -> None:
    local = [made("local", slowness, repeat, repeat) for repeat, slowness in ((1, 1.0), (2, 10.0), (3, 2.0))]
    attach = [made("attach", slowness, repeat, repeat) for repeat, slowness in ((1, 3.0), (3, 6.0))]
    found = compared(*local, *attach)
    assert found is not None
    p95 = next(one for one in found["ratios"] if one["metric"] == "product_read p95")
    assert (p95["runs"], p95["ratio"]) == (2, pytest.approx(3.0))
