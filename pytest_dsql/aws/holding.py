"""What the processes of a run hold together: files that are locked as long as a process lives, also a killed one's."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from pytest_dsql.errors import UsageError


def state_directory() -> Path:
    """Return the directory of all runs' files."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    # The XDG specification has relative paths ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "pytest-dsql" / "runs"


#: The purpose for which the process that starts a run's others holds the run: it is not abandoned between them.
STARTED: Final = "started"


@final
class Hold:
    """A share in something that several processes of a run use; whoever lets go last clears it away."""

    def __init__(self, file: int, path: Path) -> None:
        self._file: int | None = file
        self._path = path

    @classmethod
    def of(cls, run_id: str, purpose: str, directory: Path | None = None) -> Hold:
        """Join the processes of a run that share something, also before the run has an inventory. Raises UsageError."""
        folder = directory or state_directory()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = folder / f"{run_id}.{purpose}.lock"
            return cls(locked(path, fcntl.LOCK_SH), path)
        except OSError as error:
            raise UsageError(
                f"can't write to {folder}: {error.strerror} (XDG_STATE_HOME names another place)"
            ) from None

    def last(self) -> bool:
        """Tell whether no other process shares it any more; from then on none can join until `close`."""
        return self._file is not None and lock_alone(self._file)

    def clear(self) -> None:
        """Let go, and leave no file behind where nobody else shares it."""
        if self.last():
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go. Harmless when let go already."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        """Let go with whoever held it: a share that nobody can give back would keep what is shared for good."""
        self.close()


def locked(path: Path, how: int) -> int:
    """Open a file that others may be removing, and lock it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(file, how)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)  # it was removed between opening and locking


def lock_alone(file: int) -> bool:
    """Tell whether nobody else holds a file; from then on nobody else can."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Tell whether anybody holds the file of that name."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not lock_alone(file)
    finally:
        os.close(file)
