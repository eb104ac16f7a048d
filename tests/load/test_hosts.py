"""Load made by the workers of a Dask scheduler: a scheduler and two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import UsageError
from pytest_dsql.load.burst import connect_burst
from pytest_dsql.load.fleet import Progress, run_cell
from pytest_dsql.load.hosts import open_scheduler, workers_of
from pytest_dsql.load.measurement import Arrival, Outcome
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, transaction
from tests.load.conftest import cell_plan

if TYPE_CHECKING:
    from distributed import Client


@transaction(kind="write")
def take(ctx: Context) -> Steps:
    yield "UPDATE items SET quantity = quantity + 1 WHERE id = $1", (ctx.rng.randrange(100),)
    return None


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The client of a scheduler with two workers."""
    with dask(tmp_path_factory.mktemp("dask")) as (client, _workers):
        yield client


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
        deadline = time.monotonic() + 60
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


def plan_of(endpoint: Endpoint, **changes: Any) -> Any:
    run = CellRun(number=1, operation_prefix="h-", slots=4)
    return cell_plan(endpoint, Mix({take: 1}), run=run, connections=4, workers=2, **changes)


def test_a_cell_runs_on_two_hosts_as_on_one(endpoint: Endpoint, hosts: Client) -> None:
    measured = run_cell(plan_of(endpoint, window_s=1.0), scheduler=hosts)
    (samples,) = measured.samples.values()
    assert measured.interrupted is None
    assert measured.workers == 2
    assert samples.count(*Outcome) == len(samples) > 0
    assert measured.committed["take"] >= samples.count(Outcome.OK, Outcome.OK_RETRIED) > 0
    assert min(samples.intended_ns) >= 0
    assert max(samples.intended_ns) < 1_000_000_000
    # One machine, so one clock: what was found is not more than what may be wrong about it.
    assert measured.clock_uncertainty_ns is not None
    assert 0 < measured.clock_uncertainty_ns < 1_000_000_000


def test_an_open_loop_is_dealt_out_to_the_hosts(endpoint: Endpoint, hosts: Client) -> None:
    measured = run_cell(plan_of(endpoint, window_s=1.0, arrival=Arrival("constant", 100.0)), scheduler=hosts)
    (samples,) = measured.samples.values()
    assert list(samples.intended_ns) == [n * 10_000_000 for n in range(100)]


def test_a_host_that_dies_ends_the_cell_and_nothing_hangs(endpoint: Endpoint, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        if progress.phase == "window" and progress.elapsed_s > 1 and not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    with dask(tmp_path) as (client, workers):
        measured = run_cell(plan_of(endpoint, window_s=120.0), scheduler=client, progress=kill_one)
    assert killed
    assert measured.interrupted is not None
    assert "worker process" in measured.interrupted
    assert measured.arrivals > 0  # what was reported until then


def test_a_burst_is_made_from_two_hosts(endpoint: Endpoint, hosts: Client) -> None:
    stats = connect_burst(endpoint, 8, workers=2, scheduler=hosts)
    assert stats.succeeded == 8
    assert stats.elapsed_ns > 0


def test_no_scheduler_is_said_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"--dsql-scheduler tcp://127\.0\.0\.1:1: no scheduler answers there"):
        open_scheduler("tcp://127.0.0.1:1")
