"""A run that was killed goes on where it stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.results.kept import FOLDER

#: Each transaction tells its file that it ran: a cell that is taken leaves its file alone.
CELLS = """
import pytest
from pytest_dsql import Latency, Mix, Slo, ms, transaction

SLO = Slo(reads=Latency(p95=ms(5000)))

def mix(name):
    @transaction(kind="read")
    def one(ctx):
        with open(f"ran-{name}", "a") as file:
            file.write(".")
        yield "SELECT $1::bigint", (ctx.rng.randrange(100),)
    return Mix({one: 1.0})

@pytest.mark.dsql
@pytest.mark.parametrize("name", ["first", "second"])
def test_cell(dsql_load, name):
    cell = dsql_load.closed(mix(name), connections=2, warmup=0.1, duration=0.5 if name == "first" else 3.0)
    cell.assert_meets(SLO)

@pytest.mark.dsql
def test_burst(dsql_load):
    dsql_load.connect_burst(3).assert_connected()
"""


def results(pytester: pytest.Pytester) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((pytester.path / ".dsql/latest/results.json").read_text())
    return content


def killed(pytester: pytest.Pytester, *arguments: str) -> dict[str, Any]:
    """Run until the second cell is measured, kill the run as a lost machine would, and return what it wrote."""
    pytester.makepyfile(CELLS)
    process = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments])
    try:
        deadline = time.monotonic() + 300
        while not Path("ran-second").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    return results(pytester)


def test_whole_cells_are_taken_and_the_others_are_run(attached: pytest.Pytester) -> None:
    before = killed(attached, "-k", "not burst")
    [first] = before["cells"]
    ran = Path("ran-first").stat()
    result = attached.runpytest_subprocess("--dsql-resume", before["run"]["id"])
    result.assert_outcomes(passed=3)
    after = results(attached)
    assert Path("ran-first").stat() == ran
    assert [one["id"] for one in after["cells"]] == [
        f"test_whole_cells_are_taken_and_the_others_are_run.py::test_{name}"
        for name in ("cell[first]", "cell[second]", "burst")
    ]
    assert after["cells"][0] == first
    assert after["run"]["id"] == before["run"]["id"]
    assert after["run"]["started_at"] == before["run"]["started_at"]
    assert after["run"]["finished_at"] is not None
    [resumed] = after["run"]["resumed"]
    assert resumed["taken"] == [first["id"]]
    assert resumed["at"] >= before["run"]["started_at"]
    result.stdout.fnmatch_lines([f"resumed at {resumed['at']}: 1 cell taken from before"])
    assert len(list(Path(".dsql").glob("2*"))) == 1
    assert not (Path(".dsql/latest") / FOLDER).exists()
    again = attached.runpytest_subprocess("--dsql-resume", "latest")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["ERROR: --dsql-resume: run * is complete; there is nothing to resume"])


def test_a_cell_that_is_asked_otherwise_is_run(attached: pytest.Pytester) -> None:
    before = killed(attached, "-k", "cell")
    ran = Path("ran-first").stat().st_size
    attached.makepyfile(CELLS.replace("connections=2", "connections=1"))
    attached.runpytest_subprocess("--dsql-resume", "latest", "-k", "first").assert_outcomes(passed=1)
    after = results(attached)
    assert after["run"]["id"] == before["run"]["id"]
    assert after["run"]["resumed"][0]["taken"] == []
    assert Path("ran-first").stat().st_size > ran


def test_what_is_taken_and_what_is_not(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELLS
        + """
@pytest.mark.dsql
def test_beside(dsql_load):
    happened = []
    dsql_load.closed(mix("first"), connections=1, warmup=0, duration=1.0, during=lambda: happened.append(1))
    assert happened

@pytest.mark.dsql
def test_interrupted():
    raise KeyboardInterrupt
"""
    )
    assert attached.runpytest_subprocess("-k", "not second").ret == pytest.ExitCode.INTERRUPTED
    before = results(attached)
    assert before["run"]["finished_at"] is not None
    ran = Path("ran-first").stat().st_size
    attached.runpytest_subprocess("--dsql-resume", "latest", "-k", "burst or beside").assert_outcomes(passed=2)
    [resumed] = results(attached)["run"]["resumed"]
    assert [one.rpartition("::")[2] for one in resumed["taken"]] == ["test_burst"]
    assert Path("ran-first").stat().st_size > ran


def test_a_run_that_broke_off_in_its_first_cell_is_not_complete(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELLS
        + """
def interrupt():
    if not Path("again").exists():
        os.kill(os.getpid(), signal.SIGINT)

@pytest.mark.dsql
def test_interrupted(dsql_load):
    dsql_load.closed(mix("third"), connections=1, warmup=0, duration=1.0, during=interrupt).assert_meets(SLO)
""",
    )
    [module] = attached.path.glob("test_*.py")
    module.write_text("import os, signal\nfrom pathlib import Path\n" + module.read_text())
    assert attached.runpytest_subprocess("-k", "interrupted").ret == pytest.ExitCode.INTERRUPTED
    [cell] = results(attached)["cells"]
    assert cell["interrupted"].startswith("interrupted by the user")
    Path("again").touch()
    attached.runpytest_subprocess("--dsql-resume", "latest", "-k", "interrupted").assert_outcomes(passed=1)
    after = results(attached)
    assert [one["interrupted"] for one in after["cells"]] == [None]
    assert after["run"]["resumed"][0]["taken"] == []


def test_workers_of_xdist_take_cells_too(attached: pytest.Pytester) -> None:
    before = killed(attached)
    result = attached.runpytest_subprocess("--dsql-resume", "latest", "-n", "2")
    result.assert_outcomes(passed=3)
    [resumed] = results(attached)["run"]["resumed"]
    assert resumed["taken"] == [before["cells"][0]["id"]]


def test_a_run_with_another_seed_is_not_resumed(attached: pytest.Pytester) -> None:
    killed(attached)
    result = attached.runpytest_subprocess("--dsql-resume", "latest", "--dsql-seed", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --dsql-resume: run * has the seed 1, and this one 2: say --dsql-seed 1"])
    assert len(list(Path(".dsql").glob("2*"))) == 1
