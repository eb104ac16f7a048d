from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_dsql.local.account import choose_account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.mark.skipif(os.geteuid() == 0, reason="root needs another account")
def test_an_ordinary_user_runs_programs_as_itself() -> None:
    account = choose_account()
    assert account.kind == "own"
    assert account.command(["postgres"]) == ["postgres"]


@as_root
@pytest.mark.parametrize("kind", ["namespace", "other"])
def test_root_runs_programs_as_somebody_else(kind: str) -> None:
    account = choose_account("namespace" if kind == "namespace" else "other")
    user = subprocess.check_output(account.command(["id", "-u"]), text=True, **account.options)
    assert int(user) == account.uid != 0


@as_root
def test_in_a_namespace_root_keeps_its_files(tmp_path: Path) -> None:
    account = choose_account()
    if account.kind != "namespace":
        pytest.skip("user namespaces are forbidden here")
    tmp_path.chmod(0o700)
    subprocess.run(account.command(["touch", str(tmp_path / "file")]), check=True)
    assert (tmp_path / "file").stat().st_uid == 0


@as_root
def test_another_account_is_given_its_files(tmp_path: Path) -> None:
    account = choose_account("other")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").touch()
    account.own_tree(tmp_path / "directory")
    owners = {path.stat().st_uid for path in (tmp_path / "directory", tmp_path / "directory" / "file")}
    assert owners == {account.uid}
