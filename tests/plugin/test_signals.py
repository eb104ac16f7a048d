"""A run that is ended from outside keeps what it measured."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_dsql.settings import ENGINE_VARIABLE
from tests.local.gateway.harness import wait_until
from tests.plugin.conftest import CELL

LONG = (
    CELL.replace("    yield", "    open('begun', 'a').close()\n    yield")
    + """
@pytest.mark.dsql
def test_cell(dsql_load):
    dsql_load.closed(MIX, connections=1, warmup=0.0, duration=600.0)
"""
)


BOTH = [(signal.SIGINT, "the user"), (signal.SIGTERM, "SIGTERM")]


@pytest.mark.parametrize(("number", "who"), BOTH)
def test_a_signal_ends_the_cell_and_keeps_its_figures(
    attached: pytest.Pytester, number: signal.Signals, who: str
) -> None:
    attached.makepyfile(LONG)
    status, output = interrupted(attached, number)
    assert status == pytest.ExitCode.INTERRUPTED, output
    [cell] = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert f"interrupted by {who}" in cell["interrupted"]
    assert cell["transactions"]["one"]["count"] > 0
    assert cell["duration_s"] < 60


def interrupted(run: pytest.Pytester, number: signal.Signals) -> tuple[int, str]:
    """Run pytest, send it a signal when the file `begun` is there; return its status and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=run.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not (run.path / "begun").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return process.returncode, output


#: A mix whose workload takes its time to check what a cell has left.
CHECKED_SLOWLY = (
    CELL
    + """
import time
from pytest_dsql.transaction import CellRun

class Slow:
    scale = None
    def begin_cell(self, connect, *, cell, slots, requests_hint, shares=None):
        return CellRun(number=1, operation_prefix="x", slots=slots)
    def check_cell(self, connect, run, tally):
        open("begun", "a").close()
        time.sleep(60)
        return {}

@pytest.mark.dsql
def test_cell(dsql_load):
    dsql_load.closed(Mix({one: 1.0}, workload=Slow()), connections=1, warmup=0.0, duration=0.3)
"""
)


def test_a_signal_while_the_data_is_checked_keeps_the_figures_too(attached: pytest.Pytester) -> None:
    attached.makepyfile(CHECKED_SLOWLY)
    status, output = interrupted(attached, signal.SIGINT)
    assert status == pytest.ExitCode.INTERRUPTED, output
    [cell] = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert cell["transactions"]["one"]["count"] > 0
    assert cell["invariants"] == {}


def test_a_cell_whose_data_cant_be_checked_keeps_its_figures(attached: pytest.Pytester) -> None:
    attached.makepyfile(CHECKED_SLOWLY.replace("time.sleep(60)", "raise ConnectionError('the server is gone')"))
    result = attached.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ConnectionError: the server is gone*"])
    [cell] = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert cell["transactions"]["one"]["count"] > 0
    assert cell["verdict"]["outcome"] == "unjudged"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by their environment")
@pytest.mark.parametrize(("number", "who"), BOTH)
def test_an_interrupted_run_leaves_no_process_and_no_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, who: str
) -> None:
    directory = pytester.mkdir("temporary")
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(directory))
    pytester.makepyfile(LONG)
    status, output = interrupted(pytester, number)
    assert status == pytest.ExitCode.INTERRUPTED, output
    wait_until(lambda: not _with_environment(f"TMPDIR={directory}"), 300)
    wait_until(lambda: not list(directory.rglob("postmaster.pid")), 300)
    assert [one.name for one in directory.iterdir() if not one.name.startswith("pytest-")] == []


def _with_environment(setting: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found
