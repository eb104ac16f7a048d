"""The template: a data directory made once per user and PostgreSQL version, copied for every cluster."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import Account
from pytest_dsql.local.cluster import DATABASE
from pytest_dsql.local.directories import cache_directory
from pytest_dsql.local.installation import Installation
from pytest_dsql.local.locks import FileLock
from pytest_dsql.local.postgres import initdb, one_line, run_program, write_settings

#: Counted up whenever this module makes the directory differently.
_VERSION: Final = 1

_COMPLAINT: Final = re.compile(r"\b(ERROR|FATAL|PANIC|DETAIL|CONTEXT):")

_MAKING: Final = "making-"
_LOCK_TIMEOUT_S: Final = 120.0
_UNUSED_S: Final = 30 * 24 * 3600.0

#: PostgreSQL's 16 MiB would be two thirds of what is copied before every start.
_WAL_SEGMENT_MIB: Final = 4

#: Who may connect: anybody who reaches the socket, which lies in a directory of the engine's own.
_HBA: Final = "local all all trust\n"

#: The databases that PostgreSQL makes new ones from: DSQL has no CREATE DATABASE, and they are two thirds of the copy.
_DROP_TEMPLATES: Final = (
    "UPDATE pg_database SET datistemplate = false;",
    "DROP DATABASE template0;",
    "DROP DATABASE template1;",
)


#: What makes a stock database look like DSQL's, in the order in which it is run.
_CATALOG: Final = (
    "dialect/catalog.sql",
    "dialect/jobs.sql",
    "dialect/roles.sql",
    "dialect/sys.sql",
    "dialect/types.sql",
    "dialect/appearance.sql",
    "row_limits/rows.sql",
    "row_limits/tables.sql",
    "row_limits/objects.sql",
    "row_limits/beside.sql",
    "row_limits/hiding.sql",
    "adjudicator/sandbox/helpers.sql",
    "adjudicator/sandbox/generation.sql",
    "adjudicator/sandbox/functions.sql",
    "adjudicator/sandbox/rowsets.sql",
    "adjudicator/sandbox/triggers.sql",
    "adjudicator/sandbox/upkeep.sql",
    "adjudicator/sandbox/following.sql",
    "adjudicator/sandbox/snapshot.sql",
    "adjudicator/sandbox/hiding.sql",
)


def catalog_sql() -> str:
    """The SQL that makes a stock database look like DSQL's, role `admin` included."""
    directory = Path(__file__).parent
    return "\n".join((directory / name).read_text(encoding="utf-8") for name in _CATALOG)


def template_key(installation: Installation, catalog: str) -> str:
    """What a template depends on, as a short name."""
    binary = Path(installation.program("postgres"))
    parts = (str(_VERSION), installation.version, str(binary.stat().st_size), platform.machine(), _HBA, catalog)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def ensure_template(installation: Installation, account: Account, directory: Path | None = None) -> Path:
    """The template's data directory, made now when it is missing.

    `directory` is the cache (default: the user's). One process makes it while others wait; a killed one leaves
    nothing that is taken for a template. Raises EngineError.
    """
    directory = cache_directory() if directory is None else directory
    catalog = catalog_sql()
    template = directory / f"template-{template_key(installation, catalog)}"
    if not template.is_dir():
        with _locked(directory):
            if not template.is_dir():
                _remove_remains(directory)
                _make(installation, account, catalog, directory, template)
    with contextlib.suppress(OSError):
        os.utime(template)  # the mark of its last use
    return template


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = FileLock.acquire(directory / "lock", _LOCK_TIMEOUT_S)
    if lock is None:
        raise EngineError(f"another process has been making the template in {directory} for {_LOCK_TIMEOUT_S:.0f} s")
    try:
        yield
    finally:
        lock.release(remove=True)


def _remove_remains(directory: Path) -> None:
    # We hold the lock: whoever was making these is gone.
    for remains in directory.glob(f"{_MAKING}*"):
        shutil.rmtree(remains)
    for template in directory.glob("template-*"):
        if time.time() - template.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(template, ignore_errors=True)


def _make(installation: Installation, account: Account, catalog: str, directory: Path, template: Path) -> None:
    # Another account can't reach into a cache of root's, so it works in a directory under the temporary one.
    workplace = directory if account.kind != "other" else Path(tempfile.gettempdir())
    making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=workplace))
    try:
        if account.kind == "other":
            making.chmod(0o711)
        data = making / "data"
        data.mkdir(mode=0o700)
        account.own(data)
        # Clients see this role's name as that of the owner of whatever the server brings along.
        owner = "--username=postgres"
        initdb(installation, account, data, "--auth=trust", f"--wal-segsize={_WAL_SEGMENT_MIB}", owner)
        hba = data / "pg_hba.conf"
        hba.write_text(_HBA)
        write_settings(data, {"fsync": "off", "wal_level": "minimal", "max_wal_senders": "0"}, account)
        _run_sql(installation, account, data, catalog, *_DROP_TEMPLATES)
        _drop_maps(data)
        _move(data, template, directory)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _run_sql(installation: Installation, account: Account, data: Path, *scripts: str) -> None:
    """Run scripts in PostgreSQL's single-user mode, each as one transaction. Raises EngineError with its words."""
    # With -j a command ends at a semicolon before an empty line, so no empty line may be inside one.
    commands = ("\n".join(line for line in script.splitlines() if line.strip()) for script in scripts if script.strip())
    process = run_program(
        account,
        [
            installation.program("postgres"),
            *("--single", "-j", "-D", str(data), "-c", "exit_on_error=true", DATABASE),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, output = process.communicate("".join(f"{command}\n\n" for command in commands).encode())
    if process.returncode != 0:
        complaints = [line for line in output.decode(errors="replace").splitlines() if _COMPLAINT.search(line)]
        raise EngineError(f"the template's catalog can't be made: {one_line(chr(10).join(complaints))}")


def _drop_maps(data: Path) -> None:
    # Free-space and visibility maps are hints that PostgreSQL makes anew when it misses them, and every fifth file:
    # making files is most of the time that a copy takes.
    for fork in ("fsm", "vm"):
        for path in data.rglob(f"[0-9]*_{fork}"):
            path.unlink()


def _move(data: Path, template: Path, directory: Path) -> None:
    if data.stat().st_dev != directory.stat().st_dev:
        staged = Path(tempfile.mkdtemp(prefix=_MAKING, dir=directory)) / "data"
        copy_tree(data, staged)
        data = staged
    # The name appears only after the contents are on the disk: a power cut must not leave a template of empty files.
    _sync_tree(data)
    data.rename(template)
    with contextlib.suppress(OSError):
        data.parent.rmdir()


def _sync_tree(directory: Path) -> None:
    for parent, _, files in os.walk(directory):
        for name in files:
            descriptor = os.open(Path(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a data directory. Raises EngineError with the reason when it can't be copied.

    By a process of its own: in a thread, the interpreter's lock would make it wait for the imports that go on meanwhile
    (0.5 s instead of 0.3 s for 290 files).
    """
    copying = subprocess.run(["cp", "-R", source, target], capture_output=True, text=True, check=False)
    if copying.returncode != 0:
        raise EngineError(f"the data directory {target} can't be made: {one_line(copying.stderr)}")
