"""The summary shows each cell with its verdict, and the reason where it did not pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.load.cell import Cell
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.measurement import Arrival, Measurement
from pytest_dsql.report.terminal import summary_lines
from pytest_dsql.results.cell import cell_dict
from tests.load.made_cells import HEALTHY, cell, connect_stats, good_measurement, measurement, samples
from tests.results.made_files import COST, SLO, content, full_file


def results(
    *cells: Any, experiments: dict[str, Any] | None = None, resumed: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "run": {"resumed": resumed or []},
        "cells": [cell_dict(one) for one in cells],
        "experiments": experiments or {},
    }


def judged(
    measured: Measurement | None = None, name: str = "tests/shop/test_shop.py::test_orders[4]", **more: Any
) -> Cell:
    made = cell(measured, id=name, **more)
    made.verdict(SLO)
    return made


def flat(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def test_a_passed_cell_is_one_line_under_its_test() -> None:
    lines = flat(summary_lines(results(judged())))
    assert lines == [
        "cell conns tps reads p95/p99 writes p95/p99 conflicts verdict",
        "test_shop.py::test_orders",
        "closed [4] 4 1,500.0 5.00/5.00 ms 5.00/5.00 ms 0.0% pass",
        "",
        "1 cell: 1 pass",
    ]


def test_the_slowest_transaction_of_a_kind_is_shown() -> None:
    measured = measurement(samples("product_read", 6000), samples("order_history", 6000, latencies_ms=(40.0,)))
    assert "40.0/40.0 ms" in "\n".join(summary_lines(results(judged(measured))))


def test_the_reason_of_what_did_not_pass() -> None:
    slow = measurement(samples("product_read", 6000, latencies_ms=(400.0,)), samples("order_create", 6000))
    lines = flat(summary_lines(results(judged(slow))))
    assert any(line.startswith("product_read p95: 6,000 of 6,000 requests (100 %)") for line in lines)
    assert any("(1 more)" in line for line in lines)
    assert lines[-1] == "1 cell: 1 fail"


def test_a_pass_of_a_busy_generator_says_at_least() -> None:
    busy = replace(good_measurement(), generator=replace(HEALTHY, cpu=0.95))
    assert any(line.endswith("pass (at least)") for line in summary_lines(results(judged(busy))))


def test_connections_that_were_all_made_are_no_lower_bound() -> None:
    made = Connections(
        connect_stats(500), id="test_shop.py::test_burst", test="t", target="local", kind="burst", requested=500
    )
    made.assert_connected()
    assert made.limit.limited_by == "none"
    assert not any("at least" in line for line in summary_lines(results(made)))


def test_cells_of_one_test_share_its_heading() -> None:
    cells = [judged(name=f"test_shop.py::test_kept[4]{number}") for number in ("", "#2")]
    lines = flat(summary_lines(results(*cells)))
    assert lines.count("test_shop.py::test_kept") == 1
    assert any(line.startswith("closed [4] #2 ") for line in lines)


@pytest.mark.parametrize(
    ("arrival", "label"),
    [(Arrival("poisson", 400.0), "400/s run 2 #3 "), (Arrival("constant", 1234.5), "1,234.5/s constant run 2 #3 ")],
)
def test_cells_on_a_schedule_are_told_apart_by_their_rate(arrival: Arrival, label: str) -> None:
    made = judged(replace(good_measurement(), arrival=arrival), "test_shop.py::test_capacity#3", repeat=2)
    assert any(line.startswith(label) for line in flat(summary_lines(results(made), 120)))


def test_another_target_is_named() -> None:
    assert "test_shop.py::test_orders on attach" in summary_lines(results(judged(target="attach")))


def test_everything_a_file_can_hold(tmp_path: Path) -> None:
    lines = flat(summary_lines(content(full_file(tmp_path))))
    assert "connections asked made per s total p50/p99 CPU each verdict" in lines
    assert "burst [500] 500 490 122.5 4.00/4.00 ms 1.00 ms fail" in lines
    assert "10 of 500 connections were refused with 28000: unable to accept connection." in lines
    assert "token_signing: n 50, p50_ms 0.070" in lines
    assert "5 cells: 1 pass, 2 fail, 2 unjudged" in lines
    assert "resumed at 2026-11-30T12:00:00Z: 1 cell taken from before" in lines


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_table_keeps_to_the_width(tmp_path: Path, width: int) -> None:
    assert max(map(len, summary_lines(content(full_file(tmp_path)), width))) <= width


def test_a_full_table_gives_up_its_indent_before_a_name() -> None:
    passed = replace(good_measurement(60_000), generator=replace(HEALTHY, cpu=0.95))
    cells = [judged(passed, f"test_shop.py::test_orders[{size}]") for size in (16, 256)]
    lines = summary_lines(results(*cells), 80)
    assert [line.partition("]")[0] for line in lines if "[" in line] == ["closed [16", "closed [256"]


def test_plain_text_unless_colour_is_wanted() -> None:
    assert "\x1b" not in "\n".join(summary_lines(results(judged())))
    coloured = summary_lines(results(judged()), colour=True)
    assert any(line.endswith("\x1b[32mpass\x1b[0m") for line in coloured)


def test_nothing_measured_is_nothing_shown() -> None:
    assert summary_lines(results()) == []


def test_experiments_without_cells() -> None:
    shown = summary_lines(results(experiments={"token_signing": {"p50_ms": 0.07123, "n": 1000}}))
    assert shown == ["token_signing: p50_ms 0.071, n 1,000"]
    assert summary_lines(results(experiments={"capacity": {"provisional": True}})) == ["capacity: provisional yes"]


def test_a_cell_with_injected_trouble_is_marked_and_explained() -> None:
    lines = flat(summary_lines(results(judged(replace(good_measurement(), simulated=True)))))
    assert lines[2].endswith("pass (simulated)")
    assert "simulated: the engine injected latency or faults, so these figures are no database's" in " ".join(lines)


def test_a_resumed_run_says_when_and_what_it_took() -> None:
    resumed = [
        {"at": "2026-11-30T12:00:00Z", "taken": ["one", "two"]},
        {"at": "2026-11-30T13:00:00Z", "taken": ["one"]},
    ]
    assert summary_lines(results(judged(), resumed=resumed))[-2:] == [
        "resumed at 2026-11-30T12:00:00Z: 2 cells taken from before",
        "resumed at 2026-11-30T13:00:00Z: 1 cell taken from before",
    ]


def test_the_cost_of_the_run_is_a_line_for_each_target() -> None:
    cells = [
        judged(measurement(samples("product_read", 6000), samples("order_create", 6000), cost=COST), f"t[{n}]")
        for n in (1, 2)
    ]
    file = results(*cells)
    file["targets"] = [{"name": "local"}, {"name": "attach"}]
    assert "cost on local: 24.0 DPU, $0.0002 (as it would be on Aurora DSQL; estimated)" in summary_lines(file)
    file["targets"] = [
        {
            "name": "local",
            "cost_dpu": 1234.56,
            "cost_usd": 12.3,
            "cost_estimated": False,
            "cost_prices": "table of 2026-09-11",
            "budget_usd": 25.0,
        }
    ]
    assert (
        "cost on local: 1,234.6 DPU, $12.30 (as it would be on Aurora DSQL; prices: table of 2026-09-11; "
        "of a budget of $25.00)"
    ) in summary_lines(file, width=200)
