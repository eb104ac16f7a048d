"""The Lambda experiment: what a kept connection gains, how far inserts grow linearly, and what distance costs.

A function of the published run (Tokyo, 2026-03) made one operation per call. Here a function is a connection that sends
its next operation when the last one answered; what Lambda itself adds, only Lambda can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql import Mix
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.load.cell import Cell
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.targets.target import Target
from pytest_dsql.workloads.inserts.workload import Inserts, read_row

pytestmark = pytest.mark.dsql

Note = Callable[[str, Mapping[str, Any]], None]

#: Below this part of the first function's rate, others add no linear share any more.
LINEAR = 0.8
#: Tokyo to Oregon, as the published run saw it: a single-statement operation over a kept connection took 102 to 106 ms.
#: TCP, TLS 1.3 and the token take a round trip each before the server starts up.
FAR = """
rtt = { p50 = 100, p99 = 102 }
connect.tcp = 100
connect.tls = 100
connect.authentication = 100
"""


@pytest.fixture
def reads(dsql_inserts: Inserts) -> Mix:
    """Reads only."""
    return Mix({read_row: 1.0}, workload=dsql_inserts)


def kept(load: Load, mix: Mix, plan: Plan, functions: int) -> Cell:
    """Measure functions that keep their connection."""
    cell = load.closed(mix, connections=functions, warmup=plan.functions_warmup_s, duration=plan.functions_window_s)
    cell.assert_consistent()
    return cell


def renewed(load: Load, mix: Mix, plan: Plan, functions: int) -> Cell:
    """Measure functions that connect for each operation."""
    cell = load.churn(mix, connections=functions, warmup=plan.functions_warmup_s, duration=plan.functions_window_s)
    cell.assert_consistent()
    return cell


def test_one_function(dsql_load: Load, dsql_inserts: Inserts, reads: Mix, dsql_plan: Plan) -> None:
    """One function, one operation after the other: inserts and reads, over a kept connection and over new ones."""
    for mix in (dsql_inserts.mix, reads):
        assert kept(dsql_load, mix, dsql_plan, 1).tps > renewed(dsql_load, mix, dsql_plan, 1).tps


def test_many_functions(dsql_load: Load, dsql_inserts: Inserts, reads: Mix, dsql_plan: Plan) -> None:
    """Many at once: the rate of new connections bounds those that make them, the database those that don't."""
    functions = max(dsql_plan.functions)
    new = renewed(dsql_load, dsql_inserts.mix, dsql_plan, functions)
    new.assert_connected()
    for mix in (dsql_inserts.mix, reads):
        assert kept(dsql_load, mix, dsql_plan, functions).tps > new.tps


def test_inserts_grow_with_the_functions(dsql_load: Load, dsql_inserts: Inserts, dsql_plan: Plan, note: Note) -> None:
    """Rows per second over the number of functions; linearity is what each adds, the first being 1.

    The full plan's cells are as long as 1,000 sequential inserts of a function took in the published run.
    """
    rates = {
        functions: kept(dsql_load, dsql_inserts.mix, dsql_plan, functions).tps for functions in dsql_plan.functions
    }
    first = rates[min(rates)] / min(rates)
    linearity = {functions: rate / functions / first for functions, rate in rates.items()}
    linear_to = max((functions for functions, part in linearity.items() if part >= LINEAR), default=0)
    note(
        "Lambda inserts",
        {
            "rows_per_s_and_function": first,
            "linear_to_functions": linear_to,
            **{f"rows_per_s_with_{functions}": rate for functions, rate in rates.items()},
            **{f"linearity_with_{functions}": part for functions, part in linearity.items()},
        },
    )
    assert linear_to >= min(rates)


def test_distance(
    dsql_load: Load, dsql_local: LocalControls, dsql_inserts: Inserts, dsql_plan: Plan, tmp_path: Path, note: Note
) -> None:
    """Over a Region's distance a kept connection pays one round trip for an insert, a new one many.

    On the embedded engine with a profile. On AWS the distance is where the generator runs: `--dsql-runner`.
    """
    profile = tmp_path / "far.toml"
    profile.write_text(FAR)
    dsql_local.latency.use(str(profile))
    near_a_trip = kept(dsql_load, dsql_inserts.mix, dsql_plan, 1).latency("insert_row").p50_ms
    with_new = renewed(dsql_load, dsql_inserts.mix, dsql_plan, 1).latency("insert_row").p50_ms
    note("Lambda across Regions", {"kept_insert_p50_ms": near_a_trip, "new_insert_p50_ms": with_new})
    assert near_a_trip > 95
    assert with_new > near_a_trip + 250  # TCP, TLS and the token: three round trips


def test_a_second_region_costs_a_writer_its_commit(
    dsql_load: Load, dsql_local: LocalControls, dsql_inserts: Inserts, reads: Mix, dsql_plan: Plan, note: Note
) -> None:
    """An insert waits for the other Region, a read doesn't: by profile, one Region against two.

    Real clusters: `--dsql-target dsql,dsql-multi-region`, where the summary has the ratios.
    """
    p50: dict[tuple[str, str], float] = {}
    for _ in range(2):  # in turn, and the quicker one counts: a machine that is busy for a moment makes nothing quicker
        for profile in ("us-east-1-2026", "multi-region"):
            dsql_local.latency.use(profile)
            for mix, name in ((dsql_inserts.mix, "insert_row"), (reads, "read_row")):
                found = kept(dsql_load, mix, dsql_plan, 1).latency(name).p50_ms
                p50[profile, name] = min(found, p50.get((profile, name), found))
    slower = {name: p50["multi-region", name] / p50["us-east-1-2026", name] for name in ("insert_row", "read_row")}
    note("Lambda multi-Region", {"insert_slowdown": slower["insert_row"], "select_slowdown": slower["read_row"]})
    longer = {name: p50["multi-region", name] - p50["us-east-1-2026", name] for name in slower}
    assert longer["insert_row"] > 10  # of the 20 ms that a COMMIT waits for the other Region
    assert longer["read_row"] < longer["insert_row"] / 2


def test_every_region_of_a_cluster(
    dsql_load: Load, dsql_target: Target, dsql_inserts: Inserts, reads: Mix, dsql_plan: Plan
) -> None:
    """The same operations through the endpoint of each Region, and what one Region committed, the other ones see."""
    if len(dsql_target.regions) < 2:
        pytest.skip("the target is in one Region: --dsql-target dsql-multi-region, or --dsql-set regions=A+B")
    for region in dsql_target.regions:
        load = dsql_load.through(region)
        for mix in (dsql_inserts.mix, reads):
            kept(load, mix, dsql_plan, 1)
    counts = set()
    for region in dsql_target.regions:
        with dsql_target.connect(region) as connection:
            counts.add(connection.execute("SELECT count(*) FROM pytest_dsql_inserts.rows").fetchone())
    assert len(counts) == 1
