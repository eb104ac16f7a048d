"""Which run a session may go on with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.results.kept import Kept, KeptCells, expect_more, forget_all
from pytest_dsql.results.reader import read_results
from pytest_dsql.results.resumption import GoingOn, Resumption
from pytest_dsql.results.writer import ResultsFile
from tests.load.made_cells import cell, good_measurement, measurement, samples
from tests.results.made_files import run_info

RUN = "20261130T100000Z-abcdef"


def interrupted(directory: Path) -> ResultsFile:
    file = ResultsFile(directory, run_info(RUN))
    file.put(cell(id="whole"))
    file.put(cell(measurement(samples("product_read", 3), interrupted="worker 0 died"), id="cut", invariants=None))
    return file


def test_the_whole_cells_are_told_from_the_others(tmp_path: Path) -> None:
    interrupted(tmp_path)
    resumption = Resumption.of(tmp_path, "latest", plan="quick", seed=1)
    assert resumption.run == RUN
    assert resumption.whole == {"whole"}
    assert Resumption.of(tmp_path, RUN, plan="quick", seed=1).run == RUN


def test_the_file_stays_one_and_says_when_it_was_resumed(tmp_path: Path) -> None:
    interrupted(tmp_path).finish()
    KeptCells(tmp_path / RUN).keep("whole", {}, Kept(good_measurement(), None, simulated=False))
    for _again in range(2):
        resumption = Resumption.of(tmp_path, RUN, plan="quick", seed=1)
        one = ResultsFile(tmp_path, run_info(RUN), resumption=resumption)
        other = ResultsFile(tmp_path, run_info(RUN), resumption=resumption)  # of another process
        assert read_results(tmp_path)["run"]["finished_at"] is None
        one.took("whole")
        other.took("third")
    run = read_results(tmp_path)["run"]
    assert run["started_at"] <= run["resumed"][0]["at"]
    assert run["resumed"][0]["machine_fingerprint"] == run["machine_fingerprint"]
    assert run["resumed"][0]["taken"][:2] == ["whole", "third"]


@pytest.mark.parametrize(
    ("name", "plan", "seed", "message"),
    [
        ("gone", "quick", 1, rf"no run 'gone' in .*the last of those there: {RUN}"),
        ("../other", "quick", 1, "takes a run's id"),
        ("..", "quick", 1, "takes a run's id"),
        (RUN, "full", 1, "has the plan 'quick', and this one 'full': say --dsql-plan quick"),
        (RUN, "quick", 2, "has the seed 1, and this one 2: say --dsql-seed 1"),
    ],
)
def test_another_run_is_refused_in_one_line(tmp_path: Path, name: str, plan: str, seed: int, message: str) -> None:
    interrupted(tmp_path)
    with pytest.raises(UsageError, match=message) as caught:
        Resumption.of(tmp_path, name, plan=plan, seed=seed)
    assert "\n" not in str(caught.value)


def test_a_complete_run_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path).finish()
    with pytest.raises(UsageError, match="is complete"):
        Resumption.of(tmp_path, RUN, plan="quick", seed=1)


def test_a_run_that_broke_off_before_anything_was_kept_can_be_resumed(tmp_path: Path) -> None:
    interrupted(tmp_path).finish()
    expect_more(tmp_path / RUN)
    assert Resumption.of(tmp_path, RUN, plan="quick", seed=1).run == RUN
    forget_all(tmp_path / RUN)
    with pytest.raises(UsageError, match="is complete"):
        Resumption.of(tmp_path, RUN, plan="quick", seed=1)


def test_a_run_that_goes_on_is_refused(tmp_path: Path) -> None:
    file = interrupted(tmp_path)
    with pytest.raises(UsageError, match="still goes on"):
        GoingOn.alone(tmp_path / "latest")
    file.finish()
    held = GoingOn.alone(tmp_path / RUN)
    with pytest.raises(UsageError, match="still goes on"):
        GoingOn.alone(tmp_path / RUN)
    held.close()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from pytest_dsql.results.writer import ResultsFile;"
        "from tests.results.made_files import run_info;"
        f"file = ResultsFile(Path(sys.argv[1]), run_info({RUN!r})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    died = subprocess.run([sys.executable, "-c", program, tmp_path], cwd=root, timeout=300, check=False)
    assert died.returncode == -9
    GoingOn.alone(tmp_path / RUN).close()
