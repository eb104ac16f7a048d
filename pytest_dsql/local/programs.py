"""PostgreSQL's programs where another account can run them, for root without user namespaces."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import Account
from pytest_dsql.local.installation import Installation
from pytest_dsql.local.postgres import one_line

#: What the server and initdb consist of, beside each other under one prefix.
_PARTS = ("bin", "lib", "lib64", "share")


def reachable_installation(installation: Installation, account: Account, directory: Path) -> Installation:
    """The installation itself, or a copy in `directory` when `account` can't run programs where it is.

    `directory` must be one that the account can pass through. Raises EngineError when it can't be copied.
    """
    if account.kind != "other" or _runs(installation, account):
        return installation
    prefix = installation.bin_directory.parent
    # Two levels and the libraries of a wheel beside them: programs find those by relative paths.
    copied = directory / prefix.parent.name / prefix.name
    copied.mkdir(parents=True)
    for part in _PARTS:
        if (prefix / part).is_dir():
            _copy(prefix / part, copied / part)
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    if libraries.is_dir():
        _copy(libraries, directory / libraries.name)
    return Installation(copied / "bin", f"{installation.origin}, copied")


def _runs(installation: Installation, account: Account) -> bool:
    command = account.command([installation.program("postgres"), "--version"])
    try:
        return subprocess.run(command, capture_output=True, check=False, cwd="/", **account.options).returncode == 0
    except PermissionError:
        return False


def _copy(source: Path, target: Path) -> None:
    copying = subprocess.run(["cp", "-R", source, target], capture_output=True, text=True, check=False)
    if copying.returncode != 0:
        raise EngineError(f"PostgreSQL's programs can't be copied to {target}: {one_line(copying.stderr)}")
