from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsql.local.account import choose_account
from pytest_dsql.local.installation import Installation, wheel_installation
from pytest_dsql.local.postgres import initdb
from pytest_dsql.local.programs import reachable_installation

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def hidden_wheel(tmp_path: Path) -> Installation:
    """The wheel's programs, where only root can go."""
    wheel = wheel_installation()
    assert wheel is not None
    package = wheel.bin_directory.parents[1]
    (tmp_path / package.name).mkdir()
    tmp_path.chmod(0o700)
    subprocess.run(["cp", "-R", wheel.bin_directory.parent, tmp_path / package.name], check=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        subprocess.run(["cp", "-R", libraries, tmp_path], check=True)
    return Installation(tmp_path / package.name / "pginstall" / "bin", "a hidden place")


@pytest.fixture
def passable() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsql-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


def test_hidden_programs_are_copied_and_run(hidden_wheel: Installation, passable: Path) -> None:
    account = choose_account("other")
    (passable / "programs").mkdir(mode=0o755)
    copied = reachable_installation(hidden_wheel, account, passable / "programs")
    assert copied.bin_directory.is_relative_to(passable)
    data = passable / "data"
    data.mkdir()
    account.own(data)
    initdb(copied, account, data, "--auth=trust")


def test_in_a_namespace_nothing_is_copied(hidden_wheel: Installation, tmp_path: Path) -> None:
    account = choose_account()
    if account.kind != "namespace":
        pytest.skip("user namespaces are forbidden here")
    assert reachable_installation(hidden_wheel, account, tmp_path) is hidden_wheel
    initdb(hidden_wheel, account, tmp_path / "data", "--auth=trust")
