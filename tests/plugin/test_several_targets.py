"""Several targets in one run: the embedded engine and an attached PostgreSQL, the same cells on each."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.plain_postgres import PlainPostgres, plain_postgres
from tests.plugin.conftest import CELL, VOID

TARGETS = ("--dsql-target", "local,attach", "--dsql-dsn")


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    with plain_postgres() as running:
        yield running


def test_the_same_cells_run_on_each_in_turn_and_are_compared(
    attached: pytest.Pytester, server: PlainPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached.makepyfile(
        CELL
        + """
@pytest.mark.dsql
@pytest.mark.parametrize("connections", [1, 2])
def test_cell(dsql_load, dsql_target, dsql_endpoint, connections):
    assert (dsql_target.name, dsql_endpoint.dialect) in [("local", "dsql"), ("attach", "postgresql")]
    cell = dsql_load.closed(MIX, connections=connections, warmup=0.1, duration=1.0)
    cell.assert_meets(Slo(reads=Latency(p95=ms(5000))))

def test_without_a_target():
    pass

@pytest.mark.dsql_aws
def test_on_aws(dsql_target):
    assert dsql_target.name == "attach"
"""
    )
    result = attached.runpytest_subprocess(*TARGETS, server.dsn, "-v", "-rs")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=6, skipped=1)
    ran = [line.split("::")[1].split()[0] for line in result.outlines if "::" in line and "PASSED" in line]
    cells = ["test_cell[local-1]", "test_cell[attach-1]", "test_cell[local-2]", "test_cell[attach-2]"]
    assert [one for one in ran if one in cells] == cells
    assert ran.count("test_without_a_target") == 1

    content = json.loads((attached.path / ".dsql/latest/results.json").read_text())
    assert [one["name"] for one in content["targets"]] == ["local", "attach"]
    assert [(one["target"], one["verdict"]["outcome"]) for one in content["cells"]] == [
        ("local", "pass"),
        ("attach", "pass"),
    ] * 2
    compared = content["experiments"]["side by side"]
    assert compared["against"] == "local"
    [tps] = [one for one in compared["ratios"] if one["cell"].endswith("test_cell[1]") and one["metric"] == "tps"]
    on_local, on_attach = (one["tps"]["success"] for one in content["cells"][:2])
    assert tps["target"] == "attach"
    assert tps["ratio"] == pytest.approx(on_attach / on_local, rel=1e-4)
    assert tps["low"] < tps["ratio"] < tps["high"]
    result.stdout.fnmatch_lines(["side by side: how many times local's*", "*test_cell?1? on attach", "  tps *"])
    assert server.password not in json.dumps(content) + result.stdout.str() + result.stderr.str()


def test_one_test_measures_all_of_them_with_the_published_orders(
    attached: pytest.Pytester, server: PlainPostgres
) -> None:
    attached.makepyfile(
        """
import pytest
from pytest_dsql import Latency, Slo, ms
from pytest_dsql.workloads.orders.workload import Orders

# A median is decided by few requests, however slow this machine is now.
SLO = Slo(reads=Latency(p50=ms(5000)), writes=Latency(p50=ms(5000)))

@pytest.mark.dsql
def test_main_measurement(dsql_side_by_side):
    orders = Orders("tiny")
    dsql_side_by_side.load(orders)
    explored = dsql_side_by_side.explore(orders.mix, SLO, (2,), warmup=0.1, duration=1.0)
    reference = min(best for best, _cells in explored.values())
    rate = min(60.0, reference / 2)
    runs = dsql_side_by_side.repeat(
        3, lambda load: load.open(orders.mix, rate=rate, connections=16, warmup=0.1, duration=1.0)
    )
    assert list(runs) == ["local", "attach"]
    for several in runs.values():
        for cell in several.cells:
            cell.assert_consistent()
"""
    )
    result = attached.runpytest_subprocess(*TARGETS, server.dsn)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    content = json.loads((attached.path / ".dsql/latest/results.json").read_text())
    assert len({one["id"] for one in content["cells"]}) == len(content["cells"])
    order = [(one["target"], one["repeat"]) for one in content["cells"] if one["arrival"]["kind"] == "poisson"]
    # All targets once before any twice, and another one begins each time.
    assert [repeat for _target, repeat in order] == [1, 1, 2, 2, 3, 3]
    assert [order[0][0], order[2][0]] == [order[3][0], order[1][0]]
    for one in content["cells"]:
        assert one["id"].endswith(f"test_main_measurement[{one['target']}]") or "#" in one["id"]
        assert set(one["invariants"].values()) == {0}
    ratios = content["experiments"]["side by side"]["ratios"]
    repeated = [one for one in ratios if one["metric"] == "order_create p95" and one["runs"] == 3]
    assert len(repeated) == 1


def test_a_test_of_one_target_is_named_as_ever(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELL
        + """
def test_cell(dsql_side_by_side):
    [cell] = dsql_side_by_side.measure(lambda load: load.closed(MIX, connections=1, warmup=0, duration=0.5)).values()
    cell.assert_meets(Slo(reads=Latency(p50=ms(5000))))
    assert cell.id.endswith("::test_cell")
"""
    )
    result = attached.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.OK
    assert "side by side" not in result.stdout.str()


def test_a_void_cell_of_one_of_them_fails_the_test(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        VOID
        + """
def test_cell(dsql_side_by_side):
    dsql_side_by_side.measure(lambda load: load.closed(BROKEN, connections=1, warmup=0, duration=0.2))
"""
    )
    result = attached.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nothing_lost*3*"])


def test_a_target_that_cannot_be_reached_is_said_before_anything_is_made(attached: pytest.Pytester) -> None:
    attached.makepyfile("def test_it(dsql_connection): raise AssertionError('must not run')")
    result = attached.runpytest_subprocess(*TARGETS, "postgresql://me@127.0.0.1:1/app")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (result.stdout.str() + result.stderr.str()).count("could not connect to me@127.0.0.1:1") == 1


def test_xdist_workers_compare_them_in_one_file(attached: pytest.Pytester, server: PlainPostgres) -> None:
    attached.makepyfile(
        CELL
        + """
def test_cell(dsql_load):
    cell = dsql_load.closed(MIX, connections=1, warmup=0, duration=0.5)
    cell.assert_meets(Slo(reads=Latency(p50=ms(5000))))
"""
    )
    result = attached.runpytest_subprocess(*TARGETS, server.dsn, "-n", "2")
    assert result.ret == pytest.ExitCode.OK
    content = json.loads((attached.path / ".dsql/latest/results.json").read_text())
    assert sorted(one["target"] for one in content["cells"]) == ["attach", "local"]
    assert "side by side" in content["experiments"]
