"""Published figures stand beside ours: the right ones, and with what is not alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.report.terminal import summary_lines
from pytest_dsql.results.cell import cell_dict
from pytest_dsql.results.published import NAME, beside_published, published
from tests.load.made_cells import cell, measurement, samples
from tests.results.made_files import content, full_file

CLOSED = "benchmarks/test_e002_closed_loop.py::test_order_workload_meets_the_slo"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def made(connections: int, target: str = "local", test: str = CLOSED, **more: Any) -> dict[str, Any]:
    measured = measurement(samples("product_read", 6000), samples("order_create", 6000), connections=connections)
    name = f"{test}[{connections}]"
    return cell_dict(cell(measured, id=name, test=name, target=target, **more))


def beside(
    *cells: dict[str, Any], plan: str = "full", scale: str = "full", experiments: Any = ()
) -> list[dict[str, Any]]:
    results = {"run": {"plan": plan, "scale": scale}, "cells": cells, "experiments": dict(experiments)}
    found = beside_published(results)
    return [] if found is None else found["figures"]


def test_a_cell_without_a_counterpart_stands_alone() -> None:
    assert beside(made(4)) == []
    assert beside(made(16, test="tests/test_mine.py::test_order_workload_meets_the_slo")) == []


def test_every_figure_of_the_same_cell_stands_beside_ours() -> None:
    found = {one["metric"]: one for one in beside(made(64, target="dsql"))}
    # Ours has two transactions, no order_history and no order_cancel.
    assert set(found) == {
        "tps.success",
        "product_read p95",
        "product_read p99",
        "order_create p95",
        "order_create p99",
    }
    p95 = found["order_create p95"]
    assert (p95["published"], p95["published_target"], p95["ours"]) == (27.8, "dsql", 5.0)
    assert (p95["source"], p95["name"], p95["differs"]) == ("E002", "closed loop, 64 connections", [])


def test_a_target_stands_beside_itself_and_one_that_was_not_published_beside_dsql() -> None:
    [rds] = beside(made(16, target="rds-multi-az"))
    assert (rds["published_target"], rds["published"], rds["differs"]) == ("rds-multi-az", 3065, [])
    [attached] = beside(made(16, target="attach"))
    assert (attached["published_target"], attached["published"]) == ("dsql", 1006)
    assert attached["differs"] == ["target attach (published: dsql)"]


def test_what_is_not_alike_is_said() -> None:
    kept = "benchmarks/test_e003_connections.py::test_kept_connections_beat_new_ones"
    first, *_ = beside(made(4, test=kept, simulated=True), plan="quick", scale="tiny")
    assert first["differs"] == [
        "target local (published: dsql)",
        "plan quick (published: full)",
        "scale tiny (published: full)",
        "connections 4 (published: 16)",
        "simulated",
    ]


@pytest.mark.parametrize("name", ["E003 token signing", "E003 token signing on dsql"])
def test_figures_that_are_no_cells_are_found_too(name: str) -> None:
    found = beside(experiments={name: {"target": "dsql", "n": 50, "p50_ms": 0.25}})
    assert [(one["metric"], one["ours"], one["published"]) for one in found] == [("p50_ms", 0.25, 0.2)]
    assert beside(experiments={name: {"target": "dsql", "n": 51, "p50_ms": 0.25}}) == []


def test_a_run_of_the_benchmarks_has_them_in_its_file_and_summary(tmp_path: Path) -> None:
    file = full_file(tmp_path)
    assert NAME not in content(file)["experiments"]
    file.put(made(16) | {"id": "closed 16"})
    results = content(file)
    assert results["experiments"][NAME]["sources"]["E002"]["region"] == "ap-northeast-2"
    text = " ".join(" ".join(summary_lines(results)).split())
    assert "ours (published), from E002: throughput and latency" in text
    assert "none was measured alike: target local (published: dsql), plan quick (published: full)" in text
    assert "E002 closed loop, 16 connections, local (dsql): tps.success 1,500 (1,006)" in text


def test_the_data_names_benchmarks_that_exist() -> None:
    for series in published()["series"]:
        assert series["source"] in published()["sources"]
        assert ("test" in series) != ("experiment" in series)
        if "test" in series:
            file, _, function = series["test"].partition("::")
            assert f"def {function}(" in (BENCHMARKS / file).read_text(encoding="utf-8")
        else:
            texts = (file.read_text(encoding="utf-8") for file in BENCHMARKS.glob("test_*.py"))
            assert any(f'"{series["experiment"]}"' in text for text in texts)
