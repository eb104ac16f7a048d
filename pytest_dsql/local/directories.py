"""Where the engine keeps things: a run-time directory that vanishes with it, a cache that stays."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.postgres import SOCKET_NAME, SOCKET_PATH_LIMIT

#: In an engine's directory: its control socket and its log. Beside it, the lock that is held while it lives.
CONTROL_SOCKET: Final = "control.sock"
LOG: Final = "log"
ALIVE_SUFFIX: Final = ".alive"

#: An engine's directory is named by this many hexadecimal digits.
ENGINE_NAME_LENGTH: Final = 12

#: Room for what comes after the base: an engine's directory, a cluster's directory, PostgreSQL's socket.
_LONGEST_BELOW: Final = len(f"/{'x' * ENGINE_NAME_LENGTH}/9999/{SOCKET_NAME}")

_SHORT_TEMPORARY: Final = Path("/tmp")  # noqa: S108  # only as the parent of a directory that is checked to be ours


def runtime_base() -> Path:
    """The directory of this user's engines, made when it is missing.

    Under the temporary directory, or under /tmp when that one's path is too long for a unix socket. Raises EngineError
    when something that isn't ours has its name.
    """
    name = f"pytest-dsql-{os.geteuid()}"
    base = Path(tempfile.gettempdir()).absolute() / name
    if len(os.fsencode(base)) + _LONGEST_BELOW > SOCKET_PATH_LIMIT:
        base = _SHORT_TEMPORARY / name
    return private_directory(base)


def cache_directory() -> Path:
    """The directory of the cached templates, made when it is missing.

    In the user's cache directory; when the home directory is missing, read-only or somebody else's (sudo keeps HOME),
    under the temporary directory.
    """
    for parent in _user_caches():
        with contextlib.suppress(OSError, EngineError):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(parent.stat()):
                return private_directory(parent / "pytest-dsql")
    return private_directory(Path(tempfile.gettempdir()).absolute() / f"pytest-dsql-cache-{os.geteuid()}")


def _user_caches() -> list[Path]:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):
        return [Path(configured)]
    home = Path(os.environ.get("HOME") or "/nonexistent")
    if not (home.is_absolute() and home.is_dir() and _is_ours(home.stat())):
        return []
    return [home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"]


def private_directory(path: Path) -> Path:
    """Make `path` a directory of ours that nobody else can list or write.

    Raises EngineError when the name belongs to somebody else or can't be made.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.lstat()
    except OSError as error:
        raise EngineError(f"{path} can't be made: {error.strerror}; set TMPDIR to a directory of yours") from error
    if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
        raise EngineError(f"{path} is not a directory of this user's; remove it or set TMPDIR to a directory of yours")
    if status.st_mode & 0o066:
        path.chmod(0o700)
    return path


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()
