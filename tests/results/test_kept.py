"""A cell comes back as it was measured, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.load.measurement import ConnectStats, Measurement, Outcome
from pytest_dsql.results.kept import FOLDER, Kept, KeptCells, forget_all
from tests.load.made_cells import cell, connect_stats, measurement, samples
from tests.load.test_digest import batches, both
from tests.results.made_files import COST, SLO

CELL = "tests/test_shop.py::test_orders[4]"
ARGUMENTS = {"seed": 1, "mix": {"product_read": [0.5, "read"]}, "during": None}
MEASURED = measurement(
    samples("product_read", 600, slow={7: 400.0}, errors={"40001": 2}),
    samples("order_create", 600, outcomes=(Outcome.OK, Outcome.FAILED, Outcome.OK_RETRIED)),
    connect=connect_stats(3, {"53400": 1}),
    cost=COST,
)


def after(directory: Path, **options: Any) -> KeptCells:
    return KeptCells(directory, whole=frozenset({CELL}), **options)


def test_a_cell_comes_back_sample_by_sample(tmp_path: Path) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, {"stock": 0}, simulated=True))
    taken: list[str] = []
    kept = after(tmp_path, taken=taken.append).take(CELL, ARGUMENTS, Measurement)
    assert kept == Kept(MEASURED, {"stock": 0}, simulated=True)
    assert taken == [CELL]
    assert kept is not None
    first, second = cell(MEASURED).verdict(SLO), cell(kept.figures).verdict(SLO)
    assert first == second


def test_a_long_cell_comes_back_with_its_counts(tmp_path: Path) -> None:
    _, counted = both(batches(20, 400, waiting=True, stalls=True), 20)
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(counted, {"stock": 0}, simulated=False))
    kept = after(tmp_path).take(CELL, ARGUMENTS, Measurement)
    assert kept is not None
    first, second = cell(counted), cell(kept.figures)
    assert first.verdict(SLO) == second.verdict(SLO)
    assert first.series == second.series
    assert (first.outcomes, first.errors) == (second.outcomes, second.errors)


def test_connections_come_back(tmp_path: Path) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(connect_stats(40), None, simulated=False))
    kept = after(tmp_path).take(CELL, ARGUMENTS, ConnectStats)
    assert kept == Kept(connect_stats(40), None, simulated=False)
    assert after(tmp_path).take(CELL, ARGUMENTS, Measurement) is None


def test_what_the_results_file_does_not_have_whole_is_not_taken(tmp_path: Path) -> None:
    cells = KeptCells(tmp_path)
    cells.keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    assert cells.take(CELL, ARGUMENTS, Measurement) is None


@pytest.mark.parametrize("changed", [{"seed": 2}, {"mix": {}}, {"during": "x"}, {"more": 1}])
def test_another_argument_makes_another_cell(tmp_path: Path, changed: dict[str, Any]) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    assert after(tmp_path).take(CELL, ARGUMENTS | changed, Measurement) is None


def test_a_cell_that_is_extended_is_not_whole(tmp_path: Path) -> None:
    cells = KeptCells(tmp_path)
    cells.keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    cells.forget(CELL)
    assert after(tmp_path).take(CELL, ARGUMENTS, Measurement) is None


@pytest.mark.parametrize("length", [0, 1, 100, -1, -40])
def test_a_damaged_file_is_no_cell(tmp_path: Path, length: int) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(path.read_bytes()[:length])
    assert after(tmp_path).take(CELL, ARGUMENTS, Measurement) is None


@pytest.mark.parametrize("name", ["Popen", "Literal", "array", "Kept", "nothing"])
def test_a_file_can_make_nothing_but_figures(tmp_path: Path, name: str) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    (path,) = (tmp_path / FOLDER).iterdir()
    line, _, packed = path.read_bytes().partition(b"\n")
    head = json.loads(line)
    head["figures"]["generator"] = {"$class": name, "args": "true"}
    path.write_bytes(json.dumps(head).encode() + b"\n" + packed)
    assert after(tmp_path).take(CELL, ARGUMENTS, Measurement) is None


def test_an_unknown_figure_of_another_release_is_no_cell(tmp_path: Path) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(path.read_bytes().replace(b'"warmup_s"', b'"new_name"'))
    assert after(tmp_path).take(CELL, ARGUMENTS, Measurement) is None


def test_nothing_secret_is_kept(tmp_path: Path) -> None:
    token = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws/?Action=DbConnectAdmin&X-Amz-Signature=" + "0f" * 32
    identity = f"{CELL}[{token}]"
    KeptCells(tmp_path).keep(identity, {"dsn": token}, Kept(replace(MEASURED), None, simulated=False))
    for path in (tmp_path / FOLDER).iterdir():
        assert b"0f" * 32 not in path.read_bytes()


def test_a_complete_run_keeps_nothing(tmp_path: Path) -> None:
    KeptCells(tmp_path).keep(CELL, ARGUMENTS, Kept(MEASURED, None, simulated=False))
    forget_all(tmp_path)
    forget_all(tmp_path)
    assert not list(tmp_path.iterdir())
