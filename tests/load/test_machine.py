"""Who used the cores while a cell went on: the engine, the run, and others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.machine import MachineWatch, _busy_ticks
from pytest_dsql.load.measurement import EngineWork
from pytest_dsql.transaction import Mix
from tests.load.conftest import cell_plan
from tests.load.test_fleet import look

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system has no /proc/schedstat")

SPIN = "import os; os.sched_setaffinity(0, {int(os.environ['CORE'])}); print(os.getpid(), flush=True)\nwhile True: pass"
#: Starts its program and ends, so that the program is nobody's child of ours.
ORPHAN = "import os, sys\nif os.fork() == 0: os.setsid(); os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"


@contextmanager
def spinning(*, ours: bool) -> Iterator[int]:
    """A process that keeps one certain core busy; yields its id."""
    core = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", SPIN] if ours else [sys.executable, "-c", ORPHAN, SPIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CORE": core}) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)


def watched(engine: int, seconds: float = 0.6) -> EngineWork:
    watch = MachineWatch(engine)
    watch.open()
    time.sleep(seconds)
    watch.close()
    watch.close()
    assert watch.work is not None
    return watch.work


def test_others_on_the_engines_core_keep_it_waiting() -> None:
    with spinning(ours=True) as engine, spinning(ours=False):
        work = watched(engine)
    assert work.elapsed_ns >= 600_000_000
    assert work.waited_ns > work.elapsed_ns / 4  # a half, if nothing else runs there
    assert work.cpu_ns > 0
    assert work.others_ns > work.elapsed_ns / 8
    assert work.busy_ns >= work.others_ns + work.cpu_ns
    assert 0 < work.starved < work.waited_ns / work.elapsed_ns
    assert work.gateway_waited_ns == work.waited_ns  # this engine is one process


def test_what_the_run_itself_uses_is_not_to_blame() -> None:
    with spinning(ours=True) as engine, spinning(ours=True):
        work = watched(engine)
    assert work.waited_ns > work.elapsed_ns / 4
    # The other spinner had about as much as the engine, and is none of the others.
    assert work.others_ns < work.busy_ns - 1.5 * work.cpu_ns


def test_a_process_that_is_gone_tells_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    watch = MachineWatch(process.pid)
    watch.open()
    watch.close()
    assert watch.work is None


def test_a_cell_looks_at_the_engine_from_its_warm_up_to_the_end_of_its_window(endpoint: Endpoint) -> None:
    # One that certainly lives and works all the time: a backend of PostgreSQL's ends with the load.
    with spinning(ours=True) as engine:
        measured = run_cell(cell_plan(endpoint, Mix({look: 1}), warmup_s=0.2, window_s=0.8), engine=engine)
    assert measured.engine is not None
    assert measured.engine.elapsed_ns >= 1_000_000_000
    assert 0 < measured.engine.cpu_ns <= measured.engine.busy_ns
    assert run_cell(cell_plan(endpoint, Mix({look: 1}))).engine is None


def test_what_the_network_interrupts_take_is_no_other_programs() -> None:
    """The run's own packets on the loopback are interrupts as well."""
    #         user nice system idle iowait irq softirq steal
    timed = [1000, 100, 500, 9000, 50, 30, 200, 7]  # a kernel that times interrupts charges no process for them
    ticked = [1000, 100, 300, 9000, 50, 0, 200, 7]  # one that counts at ticks has them in the processes' times too
    assert _busy_ticks(timed) == _busy_ticks([*timed[:5], 90, 600, 7]) == 1607
    assert _busy_ticks(ticked) == 1607


def test_two_windows_add_up() -> None:
    first, second = EngineWork(10, 5, 4, 2, 8, 4), EngineWork(30, 5, 6, 2, 8, 3)
    assert first.plus(second) == EngineWork(40, 10, 10, 4, 16, 7)
    assert first.gateway_starved == pytest.approx(0.1)
    assert first.starved == 0.125
    assert first.others_share == 0.25
    assert EngineWork(0, 0, 0, 0, 0).starved == 0
