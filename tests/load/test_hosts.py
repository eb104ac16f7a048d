"""Load made by the workers of a Dask scheduler: a scheduler and two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import UsageError
from pytest_dsql.load.burst import connect_burst
from pytest_dsql.load.fleet import Progress, run_cell
from pytest_dsql.load.hosts import open_scheduler, workers_of
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, transaction
from tests.load.conftest import cell_plan
from tests.load.made_cells import cell
from tests.load.test_fleet import quantity

if TYPE_CHECKING:
    from distributed import Client


@transaction(kind="write")
def take(ctx: Context) -> Steps:
    yield "UPDATE items SET quantity = quantity + 1 WHERE id = $1", (ctx.rng.randrange(100),)
    return None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, list[subprocess.Popen[bytes]]]]:
    with dask(tmp_path_factory.mktemp("dask")) as both:
        yield both


@pytest.fixture
def hosts(cluster: tuple[Client, list[subprocess.Popen[bytes]]]) -> Client:
    """The client of a scheduler with two workers."""
    return cluster[0]


@contextmanager
def dask(tmp_path: Path) -> Iterator[tuple[Client, list[subprocess.Popen[bytes]]]]:
    """A scheduler, two workers without nannies, and a client."""
    address_file = tmp_path / "scheduler.json"
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__DAEMON": "False"}

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=tmp_path,
        )

    file = ("--scheduler-file", str(address_file))
    processes = [
        start(
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(address_file),
        )
    ]
    client: Any = None
    try:
        deadline = time.monotonic() + 300
        while not address_file.exists():
            assert time.monotonic() < deadline
            assert processes[0].poll() is None
            time.sleep(0.1)
        options = ("--no-nanny", "--no-dashboard", "--nthreads", "2", "--host", "127.0.0.1")
        processes += [start("dask_worker", *file, *options, "--local-directory", str(tmp_path)) for _ in range(2)]
        address = json.loads(address_file.read_text())["address"]
        while client is None:
            try:
                client = open_scheduler(address)
            except UsageError:
                assert time.monotonic() < deadline
        while len(workers_of(client)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield client, processes[1:]
    finally:
        if client is not None:
            client.close()
        for process in reversed(processes):
            process.kill()
            process.wait()


@transaction(kind="read", block=False)
def known(ctx: Context) -> Steps:
    slow = ctx.rng.random() < 0.2
    yield f"SELECT /*delay={1000 if slow else 5}*/ $1", (ctx.operation_id,)
    return None


def plan_of(endpoint: Endpoint, *, mix: Mix | None = None, connections: int = 4, **changes: Any) -> Any:
    run = CellRun(number=1, operation_prefix="h-", slots=connections)
    return cell_plan(endpoint, mix or Mix({take: 1}), run=run, connections=connections, workers=2, **changes)


def test_a_cell_runs_on_two_hosts_as_on_one(endpoint: Endpoint, hosts: Client) -> None:
    measured = run_cell(plan_of(endpoint, warmup_s=0.5, window_s=2.0), scheduler=hosts, engine=os.getpid())
    assert measured.engine is None  # nobody can tell the generator's processes there from those of other programs
    counts = measured.requests["take"]
    assert measured.interrupted is None
    assert measured.workers == 2
    assert counts.count(*Outcome) == len(counts) > 0
    assert measured.committed["take"] > counts.count(Outcome.OK, Outcome.OK_RETRIED) > 0  # the warm-up counts here
    made = cell(measured, invariants=None)
    assert made.is_counted
    assert len(made.series.success) == 2
    assert sum(made.series.success) == counts.count(Outcome.OK, Outcome.OK_RETRIED)
    # One machine, so one clock: what was found is not more than what may be wrong about it.
    assert measured.clock_uncertainty_ns is not None
    assert 0 < measured.clock_uncertainty_ns < 1_000_000_000


def test_hosts_count_what_this_host_would_have(fake: Endpoint, hosts: Client) -> None:
    """Against a server whose answers take known times: the same number, percentiles, objectives and verdict."""
    slo = Slo(reads=Latency(p50=ms(950), p95=ms(950)), max_failure_rate=0.01, min_tps=20)
    mix = Mix({known: 1})
    made = []
    for scheduler in (None, hosts):
        plan = plan_of(fake, mix=mix, window_s=4.0, arrival=Arrival("constant", 40.0), connections=16)
        made.append(cell(run_cell(plan, scheduler=scheduler), invariants=None))
    ours, theirs = made
    assert (ours.is_counted, theirs.is_counted) == (False, True)
    assert ours.outcomes == theirs.outcomes
    assert ours.outcomes["ok"] == 160
    assert ours.series.success == theirs.series.success
    # A fifth of the requests are answered after a second, the others after 5 ms, whoever asks.
    for one in made:
        assert 5 <= one.latency("known").p50_ms < 950  # what this machine may take besides
        assert 1000 <= one.latency("known").p95_ms < 1950
        assert [(each.metric, each.n, each.outcome) for each in one.verdict(slo).objectives] == [
            ("p50", 160, "pass"),
            ("p95", 160, "fail"),
            ("failure_rate", 160, "inconclusive"),  # it takes more of them
            ("tps", 20, "pass"),
        ]
        assert one.verdict(slo).outcome in ("fail", "invalid")  # invalid where the machine was too busy


def test_an_open_loop_is_dealt_out_to_the_hosts(endpoint: Endpoint, hosts: Client) -> None:
    measured = run_cell(plan_of(endpoint, window_s=2.0, arrival=Arrival("constant", 100.0)), scheduler=hosts)
    assert measured.arrivals == 200
    assert cell(measured, invariants=None).series.success == [100, 100]


def test_a_cell_is_extended_on_the_hosts(endpoint: Endpoint, hosts: Client) -> None:
    def window(count: int = 1) -> Measurement:
        return run_cell(plan_of(endpoint, window_s=count / 2, arrival=Arrival("constant", 400.0)), scheduler=hosts)

    made = cell(window(), invariants=None, extend=lambda windows: (window(windows), None))
    verdict = made.verdict(Slo(writes=Latency(p99=ms(60_000))))  # needs 545 requests at the second of three looks
    assert (verdict.outcome, verdict.look) == ("pass", 3)
    assert made.measurement.arrivals == 800
    assert made.series.success == [200, 200, 400]


def test_a_load_process_that_is_killed_keeps_its_counts(endpoint: Endpoint, hosts: Client) -> None:
    """Its agent lives on, so that everything is told that the process had reported: four times a second."""
    agents = set(hosts.run(os.getpid).values())
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        if progress.phase == "window" and progress.elapsed_s > 2 and not killed:
            killed.append(min(load_processes(agents)))
            os.kill(killed[0], signal.SIGKILL)

    before = quantity(endpoint)
    measured = run_cell(plan_of(endpoint, window_s=120.0), scheduler=hosts, progress=kill_one)
    assert measured.interrupted is not None
    assert "status -9" in measured.interrupted
    done = quantity(endpoint) - before
    # The other one was told to stop and lost nothing.
    assert done / 2 < measured.committed["take"] <= done
    assert all(count > 0 for count in cell(measured, invariants={}).series.success[:2])


def load_processes(agents: set[int]) -> list[int]:
    """The load generator's processes that those of Dask have started."""
    found = []
    for directory in Path("/proc").iterdir():
        with suppress(OSError):
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in agents and "pytest_dsql.load.worker" in (directory / "cmdline").read_text():
                found.append(int(directory.name))
    return found


def test_a_burst_is_made_from_two_hosts(endpoint: Endpoint, hosts: Client) -> None:
    stats = connect_burst(endpoint, 8, workers=2, scheduler=hosts)
    assert stats.succeeded == 8
    assert stats.elapsed_ns > 0


def test_no_scheduler_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsql.load.hosts._CONNECT_S", 0.5)
    with pytest.raises(UsageError, match=r"--dsql-scheduler tcp://127\.0\.0\.1:1: no scheduler answers there"):
        open_scheduler("tcp://127.0.0.1:1")


def test_a_host_that_dies_ends_the_cell_and_what_it_counted_is_kept(
    endpoint: Endpoint, cluster: tuple[Client, list[subprocess.Popen[bytes]]]
) -> None:
    """The last test of this module: its host is gone afterwards."""
    client, workers = cluster
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        if progress.phase == "window" and progress.elapsed_s > 2.5 and not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    before = quantity(endpoint)
    measured = run_cell(plan_of(endpoint, window_s=120.0), scheduler=client, progress=kill_one)
    assert killed
    assert measured.interrupted is not None
    assert "worker process" in measured.interrupted
    assert measured.duration_s < 60
    # Both told once a second; the one that died has not told its last second or so.
    made = cell(measured, invariants={})
    assert all(count > 0 for count in made.series.success[:2])
    assert 0 < measured.committed["take"] <= quantity(endpoint) - before
    assert sum(made.series.success) == measured.requests["take"].count(Outcome.OK, Outcome.OK_RETRIED)
    assert made.verdict(Slo(writes=Latency(p95=ms(5000)))).outcome == "inconclusive"
