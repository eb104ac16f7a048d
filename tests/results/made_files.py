"""Results files made up for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_dsql.errors import SloMissed
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.cost import Cost, Dpu
from pytest_dsql.load.measurement import EngineWork
from pytest_dsql.results.resumption import Resumption
from pytest_dsql.results.run import RunInfo
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.slo.objectives import Latency, Slo, ms
from tests.load.made_cells import cell, connect_stats, good_measurement, measurement, samples

SLO = Slo(reads=Latency(p95=ms(50), p99=ms(100)), writes=Latency(p95=ms(100)), max_failure_rate=0.001, min_tps=10)


COST = Cost(1_790_000_000.25, 1_790_000_009.5, 12.0, Dpu(1.0, 2.0, 9.0), 0.000096, True, "engine")


def run_info(run_id: str = "20261130T100000Z-abcdef") -> RunInfo:
    return RunInfo.collect(id=run_id, plan="quick", seed=1)


def burst(**changes: Any) -> Connections:
    facts: dict[str, Any] = {
        "id": "tests/test_shop.py::test_burst[500]",
        "test": "tests/test_shop.py::test_burst[500]",
        "target": "local",
        "kind": "burst",
        "requested": 500,
    }
    return Connections(connect_stats(490, {"28000": 10}), **(facts | changes))


def full_file(directory: Path) -> ResultsFile:
    """Write a file that has every key: cells of each verdict, a burst, an empty cell, an experiment."""
    file = ResultsFile(
        directory, run_info(), resumption=Resumption(run_info().id, "2026-11-30T12:00:00Z", frozenset({"slow"}))
    )
    file.took("slow")
    file.put_target("local", version="PostgreSQL 16.14", simulated=False)
    cell(record=file.put).verdict(SLO)
    slow = measurement(
        samples("product_read", 6000, slow=dict.fromkeys(range(0, 6000, 20), 400.0), errors={"40001": 7}),
        samples("order_create", 6000),
        cost=COST,
        engine=EngineWork(elapsed_ns=10**10, waited_ns=10**9, cpu_ns=8 * 10**9, others_ns=10**9, busy_ns=12 * 10**9),
    )
    cell(slow, id="slow", record=file.put).verdict(SLO)
    file.put(cell(measurement(samples("product_read", 0), interrupted="worker 0 died"), id="empty", invariants=None))
    file.put(cell(good_measurement(), id="unjudged"))
    try:
        burst(record=file.put).assert_connected()
    except SloMissed:
        file.put_experiment("token_signing", {"n": 50, "p50_ms": 0.07})
    file.finish()
    return file


def content(file: ResultsFile) -> dict[str, Any]:
    """Return what the file holds, unchecked."""
    value = json.loads(file.path.read_text(encoding="utf-8"))
    assert isinstance(value, dict)
    return value
