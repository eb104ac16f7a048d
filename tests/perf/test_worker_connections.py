"""What connections cost a worker process of the generator: memory of each, from idle to busy, over TLS.

Run on a quiet machine: `pytest tests/perf/test_worker_connections.py -s`.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from pytest_dsql.load.fleet import Progress, run_cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.local.client import Engine
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.transaction import Context, Mix, Steps, transaction
from tests.load.conftest import cell_plan
from tests.local.engines import endpoint_of

CONNECTIONS = 9_500
#: libpq and OpenSSL alone take 98 with a single-root file of authorities.
MOST_KIB = 160

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@transaction(kind="read", block=False)
def one(ctx: Context) -> Steps:
    yield "SELECT $1::text", (ctx.operation_id,)
    return None


def worker_kib() -> int:
    """Return what the only worker process of this one has in memory, 0 when there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"pytest_dsql.load.worker" in (process / "cmdline").read_bytes():
                pages = int((process / "statm").read_text().split()[1])
                return pages * resource.getpagesize() // 1024
        except OSError:
            continue
    return 0


class Watch:
    """Notes the worker's memory at the end of each phase."""

    def __init__(self) -> None:
        self.kib: dict[str, int] = {}

    def __call__(self, progress: Progress) -> None:
        self.kib[progress.phase] = worker_kib() or self.kib.get(progress.phase, 0)


def measure(engine: Engine, connections: int, arrival: Arrival) -> tuple[Measurement, Watch]:
    watch = Watch()
    plan = cell_plan(
        endpoint_of(engine), Mix({one: 1}), arrival=arrival, connections=connections, warmup_s=2.0, window_s=8.0
    )
    return run_cell(plan, progress=watch), watch


def test_ten_thousand_connections_fit_into_one_worker() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 1_000:
        pytest.skip(f"no {CONNECTIONS} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with Engine.start_or_attach(options=EngineOptions(limits=Limits(connect_burst=100_000))) as engine:
            _, alone = measure(engine, 1, Arrival("closed"))
            idle, waiting = measure(engine, CONNECTIONS, Arrival("poisson", 100.0))
            busy, working = measure(engine, CONNECTIONS, Arrival("closed"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    base_kib = alone.kib["window"]
    each = {
        name: (watch.kib["window"] - base_kib) / (CONNECTIONS - 1)
        for name, watch in (("idle", waiting), ("busy", working))
    }
    for name, measured in (("idle", idle), ("busy", busy)):
        (samples,) = measured.samples.values()
        print(
            f"\n{CONNECTIONS:,} {name}: {each[name]:.1f} KiB each over {base_kib / 1024:.0f} MiB; "
            f"{len(samples):,} requests, {samples.count(Outcome.OK):,} ok, CPU {measured.generator.cpu:.0%}"
        )
        assert measured.connect.succeeded >= CONNECTIONS
        assert samples.count(Outcome.OK) == len(samples) - samples.count(Outcome.CANCELLED) > 0
        assert each[name] < MOST_KIB
