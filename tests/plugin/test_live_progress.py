"""On a terminal, with pytest's capture as it is by default, a running cell is to be seen; afterwards it is not."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.plugin.conftest import CELL
from tests.screen import Screen

TEST = f"""{CELL}
@pytest.mark.parametrize("number", [1, 2])
def test_cell(dsql_load, number):
    dsql_load.closed(MIX, connections=1, warmup=0.3, duration=0.3).assert_connected()
"""


@pytest.mark.parametrize(
    ("options", "reported"),
    [([], ["test_shop.py .."]), (["-v"], ["test_shop.py::test_cell[1] PASSED", "test_shop.py::test_cell[2] PASSED"])],
    ids=["plain", "verbose"],
)
def test_a_running_cell_is_shown_and_leaves_no_trace(
    attached: pytest.Pytester, options: list[str], reported: list[str]
) -> None:
    attached.makepyfile(test_shop=TEST)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    screen, seen = Screen(rows=40), set()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        while piece := _read(ours):
            screen.feed(piece)
            seen |= {line.split(":")[2] for line in screen.lines if line.startswith("test_shop.py::test_cell[2]: ")}
    os.close(ours)
    assert running.returncode == 0, screen.text
    assert seen, "no line of progress was shown"
    written = [" ".join(line.split()) for line in screen.text.splitlines() if line.startswith("test_shop.py")]
    assert [line.partition(" [")[0] for line in written if "[" in line] == reported


def _read(terminal: int) -> str:
    """Return what was written next; nothing when the other side is closed."""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # how Linux reports the end of a pseudo-terminal
        return ""
