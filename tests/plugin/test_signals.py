"""A run that is ended from outside keeps what it measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.plugin.conftest import CELL

LONG = (
    CELL.replace("    yield", "    open('begun', 'a').close()\n    yield")
    + """
@pytest.mark.dsql
def test_cell(dsql_load):
    dsql_load.closed(MIX, connections=1, warmup=0.0, duration=600.0)
"""
)


@pytest.mark.parametrize(("number", "who"), [(signal.SIGINT, "the user"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_ends_the_cell_and_keeps_its_figures(
    attached: pytest.Pytester, number: signal.Signals, who: str
) -> None:
    attached.makepyfile(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=attached.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (attached.path / "begun").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    [cell] = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert f"interrupted by {who}" in cell["interrupted"]
    assert cell["transactions"]["one"]["count"] > 0
    assert cell["duration_s"] < 60
