"""The file is whole at every moment, whoever writes it and whatever goes wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.results import writer
from pytest_dsql.results.mask import masked_value
from pytest_dsql.results.reader import read_results
from pytest_dsql.results.writer import ResultsFile
from tests.load.made_cells import cell, measurement, samples
from tests.results.made_files import COST, SLO, content, full_file, run_info

#: Assembled, so that it is nobody's: a token as a client would sign it.
TOKEN = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws/?Action=DbConnectAdmin&X-Amz-Signature=" + "0f" * 32
ACCOUNT = "1234" + "5678" + "9012"


def test_a_file_exists_before_the_first_cell(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "new" / "dir", run_info())
    assert read_results(file.path)["cells"] == []
    assert read_results(file.path)["run"]["finished_at"] is None


def test_latest_points_to_the_newest_run(tmp_path: Path) -> None:
    ResultsFile(tmp_path, run_info("20261130T100000Z-aaaaaa"))
    ResultsFile(tmp_path, run_info("20261130T110000Z-bbbbbb"))
    assert (tmp_path / "latest").readlink() == Path("20261130T110000Z-bbbbbb")
    assert read_results(tmp_path)["run"]["id"] == "20261130T110000Z-bbbbbb"
    assert not list(tmp_path.glob(".latest*"))


def test_a_file_system_without_links_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", no_links)
    file = ResultsFile(tmp_path, run_info())
    assert not (tmp_path / "latest").exists()
    assert read_results(tmp_path) == read_results(file.path)


def test_a_directory_named_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    ResultsFile(tmp_path, run_info())
    assert [one.name for one in (tmp_path / "latest").iterdir()] == ["mine"]
    assert not list(tmp_path.glob(".latest*"))


def test_a_cell_is_replaced_by_its_id_and_keeps_its_place(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    first = cell(id="first", record=file.put)
    file.put(first)
    file.put(cell(id="second"))
    first.verdict(SLO)
    cells = read_results(file.path)["cells"]
    assert [one["id"] for one in cells] == ["first", "second"]
    assert [one["verdict"]["outcome"] for one in cells] == ["pass", "unjudged"]


def test_targets_and_experiments_are_replaced_by_name(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.put_target("local", version="15")
    file.put_target("local", version="16")
    file.put_experiment("token_signing", {"p50_ms": 1})
    file.put_experiment("token_signing", {"p50_ms": 2})
    assert read_results(file.path)["targets"] == [{"name": "local", "version": "16"}]
    assert read_results(file.path)["experiments"] == {"token_signing": {"p50_ms": 2}}


def test_a_target_is_known_better_and_its_costs_add_up(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.put_target("local", version="16")
    file.add_cost("local", {"cost_dpu": 2.0, "cost_usd": None, "cost_prices": "table"})
    file.put_target("local", version="16")  # another process of the run, which comes late
    file.add_cost("local", {"cost_dpu": 3.0, "cost_usd": 0.5, "cost_prices": "table"})
    assert read_results(file.path)["targets"] == [
        {"name": "local", "version": "16", "cost_dpu": 5.0, "cost_usd": 0.5, "cost_prices": "table"}
    ]


def test_the_cost_of_a_cell_can_be_known_better_later(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.put(cell(measurement(samples("product_read", 3), cost=COST), id="first"))
    file.put(cell(id="second"))
    assert [one["cost"] for one in read_results(file.path)["cells"]] == [
        {
            "dpu": 12.0,
            "compute_dpu": 1.0,
            "read_dpu": 2.0,
            "write_dpu": 9.0,
            "multi_region_write_dpu": 0.0,
            "usd": 0.000096,
            "estimated": True,
            "source": "engine",
            "began_at": "2026-09-21T14:13:20.250Z",
            "ended_at": "2026-09-21T14:13:29.500Z",
        },
        None,
    ]
    file.put_costs({"first": replace(COST, dpu=13.0, parts=None, estimated=False, source="cloudwatch")})
    first, second = (one["cost"] for one in read_results(file.path)["cells"])
    assert (first["dpu"], first["read_dpu"], first["estimated"], first["source"]) == (13.0, None, False, "cloudwatch")
    assert second is None


def test_finish_notes_the_end(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.finish()
    assert read_results(file.path)["run"]["finished_at"] >= read_results(file.path)["run"]["started_at"]


def test_a_second_process_of_the_run_adds_to_the_same_file(tmp_path: Path) -> None:
    one, other = ResultsFile(tmp_path, run_info()), ResultsFile(tmp_path, run_info())
    one.put(cell(id="one"))
    other.put(cell(id="other"))
    assert {entry["id"] for entry in read_results(tmp_path)["cells"]} == {"one", "other"}


def test_many_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from pytest_dsql.results.writer import ResultsFile
        from tests.load.made_cells import cell, measurement, samples
        from tests.results.made_files import run_info
        file = ResultsFile(Path(sys.argv[1]), run_info())
        for number in range(5):
            file.put(cell(measurement(samples("product_read", 3)), id=f"{sys.argv[2]}-{number}"))
    """)
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path, str(number)], cwd=root) for number in range(3)
    ]
    assert [one.wait(timeout=300) for one in processes] == [0, 0, 0]
    assert len(read_results(tmp_path)["cells"]) == 15


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the kernel refuses the write in the middle."""
    program = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from pytest_dsql.errors import DsqlError
        from pytest_dsql.results.writer import ResultsFile
        from tests.load.made_cells import cell
        from tests.results.made_files import run_info
        file = ResultsFile(Path(sys.argv[1]), run_info())
        file.put(cell(id="kept"))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.path.stat().st_size + 100,) * 2)
        try:
            file.put(cell(id="lost"))
        except DsqlError as error:
            print(error)
    """)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=root, capture_output=True, text=True, timeout=300, check=True
    )
    (line,) = done.stdout.splitlines()
    assert "can't write results to" in line
    assert "File too large; what it held before is unchanged" in line
    assert [one["id"] for one in read_results(tmp_path)["cells"]] == ["kept"]
    assert [one.name for one in (tmp_path / "latest").iterdir() if "results" in one.name] == ["results.json"]


def test_no_space_left_keeps_the_earlier_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.put(cell(id="kept"))

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DsqlError, match="No space left on device"):
        file.put(cell(id="lost"))
    monkeypatch.undo()
    assert [one["id"] for one in read_results(tmp_path)["cells"]] == ["kept"]
    file.put(cell(id="later"))
    assert [one["id"] for one in read_results(tmp_path)["cells"]] == ["kept", "later"]


def test_a_directory_that_can_t_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"can't write results to .*--dsql-results"):
        ResultsFile(tmp_path / "file" / "results", run_info())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_can_t_be_written_is_a_usage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UsageError, match="Permission denied"):
            ResultsFile(tmp_path, run_info())
    finally:
        tmp_path.chmod(0o700)


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path, run_info())
    file.path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="not JSON"):
        file.put(cell())
    assert file.path.read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize("wrong", ["", "../escape", "a/b", ".hidden", "x" * 101])
def test_a_run_id_is_a_name(wrong: str) -> None:
    with pytest.raises(UsageError, match="run's id"):
        run_info(wrong)


def test_nothing_secret_is_written(tmp_path: Path) -> None:
    file = full_file(tmp_path)
    made = cell(id=f"tests::{TOKEN}", invariants=None)
    made.measurement.interrupted = f"connection to postgresql://admin:hunter2@db/postgres as {ACCOUNT} broke"
    file.put(made)
    file.put_target("local", reached=TOKEN)
    file.put_experiment("E003", {"note": [f"password=hunter2 {ACCOUNT}"]})
    text = file.path.read_text(encoding="utf-8")
    for secret in ("0f" * 32, "hunter2", ACCOUNT):
        assert secret not in text


def test_figures_are_not_masked() -> None:
    assert masked_value({"count": int(ACCOUNT), "histogram": f"a/{ACCOUNT}/b"}) == {
        "count": int(ACCOUNT),
        "histogram": f"a/{ACCOUNT}/b",
    }


def test_the_file_is_plain_json(tmp_path: Path) -> None:
    file = full_file(tmp_path)
    assert json.loads(file.path.read_text(encoding="utf-8"), parse_constant=pytest.fail) == content(file)


def test_the_writer_holds_no_lock_between_cells(tmp_path: Path) -> None:
    import fcntl

    file = ResultsFile(tmp_path, run_info())
    with (file.path.parent / writer.LOCK_NAME).open("r") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
