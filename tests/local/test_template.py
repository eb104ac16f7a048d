from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_dsql.errors import EngineError
from pytest_dsql.local import template
from pytest_dsql.local.account import choose_account
from pytest_dsql.local.installation import find_installation
from pytest_dsql.local.template import ensure_template

MAKE = """
import sys
from pathlib import Path
from pytest_dsql.local.account import choose_account
from pytest_dsql.local.installation import find_installation
from pytest_dsql.local.template import ensure_template
print(ensure_template(find_installation(), choose_account(), Path(sys.argv[1])))
"""


def make(cache: Path) -> Path:
    return ensure_template(find_installation(), choose_account(), cache)


def test_the_template_is_made_once(tmp_path: Path) -> None:
    first = make(tmp_path)
    made = first.stat().st_ino
    assert make(tmp_path) == first
    assert first.stat().st_ino == made
    assert (first / "PG_VERSION").exists()
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_processes_that_start_together_make_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(tmp_path)]
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: subprocess.check_output(command, text=True).strip(), range(3)))
    assert len(set(made)) == 1
    assert [str(path) for path in tmp_path.iterdir()] == [made[0]]


def test_a_killed_initdb_leaves_nothing_that_counts(tmp_path: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKE, str(tmp_path)], start_new_session=True)
    while not (remains := list(tmp_path.glob("making-*/data/PG_VERSION"))):
        assert maker.poll() is None
        time.sleep(0.001)
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait()
    assert remains[0].exists()
    assert not list(tmp_path.glob("template-*"))
    template_directory = make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [template_directory.name]


def test_a_catalog_that_fails_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "catalog_sql", lambda: "CREATE ROLE admin;\n\nSELECT no_such_function();\n")
    with pytest.raises(EngineError, match=r"catalog can't be made: .*no_such_function\(\) does not exist"):
        make(tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_catalog_is_another_template() -> None:
    installation = find_installation()
    assert template.template_key(installation, "a") != template.template_key(installation, "b")


def test_what_nobody_used_for_long_is_removed(tmp_path: Path) -> None:
    old, recent = tmp_path / "template-old", tmp_path / "template-recent"
    old.mkdir()
    recent.mkdir()
    long_ago = time.time() - 40 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    used = make(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {recent.name, used.name}


def test_a_copy_that_does_not_fit_is_told(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").touch()
    with pytest.raises(EngineError, match=r"the data directory .* can't be made: .*No such file"):
        template.copy_tree(tmp_path / "source", tmp_path / "missing" / "target")
