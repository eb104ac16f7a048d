"""Signals to the process that starts pytest-xdist's workers, and to one whose terminal is lost: all is removed."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: A target whose provider is a folder: what exists is a file, which takes a second to go.
MODULE = """
import time
from pathlib import Path

from pytest_dsql.aws.creating import Made
from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.targets.target import Target

HERE = Path(__file__).parents[1]
OPTIONS = {}
ACTIONS = ()


def check(settings):
    pass


def open(settings, run):
    def create(entry):
        (HERE / entry.name).touch()
        return Made(entry.name)

    run.create(Thing.kind, "thing", create)
    endpoint = Endpoint.from_dsn("postgresql://me@127.0.0.1:1/app")
    facts = {"dialect": "postgresql", "server": "-"}
    return Target(name=settings.target, endpoint=endpoint, tokens=TokenSource(endpoint), facts=facts)


class Thing:
    kind = "ours.folder:Thing"
    rank = 50

    def find(self, clients, entry):
        return entry.name if (HERE / entry.name).exists() else None

    def delete(self, clients, entry):
        (HERE / "going").touch()

    def gone(self, clients, entry):
        time.sleep(0.5)
        (HERE / entry.name).unlink(missing_ok=True)
        return True

    def scan(self, clients, region):
        return []
"""
TEST = """
import pathlib, time

def test_it(dsql_endpoint):
    pathlib.Path("running").touch()
    time.sleep(120)
"""


@pytest.fixture
def session(tmp_path: Path) -> list[str]:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "folder.py").write_text(MODULE)
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--dsql-target=ours.folder",
        "--dsql-budget=1",
        "--dsql-region=elsewhere",
    ]


def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DSQL_", "PG", "PYTEST"))}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}


def until_it_runs(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    deadline = time.monotonic() + 300
    while not (tmp_path / "running").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (tmp_path / "thing").exists()


def nothing_is_left(tmp_path: Path) -> None:
    assert not (tmp_path / "thing").exists()
    assert list((tmp_path / "state" / "pytest-dsql" / "runs").glob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("workers", "number"),
    [((), signal.SIGHUP), (("-n1",), signal.SIGTERM)],  # SIGTERM alone: test_whole_run.py
    ids=["SIGHUP", "xdist"],
)
def test_a_signal_removes_what_was_created(
    session: list[str], workers: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*session, *workers],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    until_it_runs(process, tmp_path)
    process.send_signal(number)
    out = process.communicate(timeout=300)[0].decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    assert re.search("remaining: 0", out), out
    nothing_is_left(tmp_path)


def test_a_lost_terminal_removes_what_was_created(session: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        session,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    until_it_runs(process, tmp_path)
    os.close(ours)  # whatever it says from now on is an error
    process.send_signal(signal.SIGHUP)
    process.wait(timeout=300)
    nothing_is_left(tmp_path)
