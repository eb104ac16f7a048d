"""File locks between processes, on files that may be removed by whoever holds the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import final

_POLL_S = 0.01


@final
class FileLock:
    """An exclusive advisory lock on a file; it ends with the last process that has the open descriptor.

    A child that inherits `descriptor` holds the lock with its parent, and goes on holding it alone.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path, timeout_s: float | None) -> FileLock | None:
        """Take the lock, waiting up to `timeout_s` (None: not at all); None when somebody else kept it.

        The directory must exist; the file is made when it is missing.
        """
        deadline = time.monotonic() + (timeout_s or 0)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= deadline:
                    return None
                # flock has no time limit of its own, and a signal to interrupt it would be the host program's.
                time.sleep(_POLL_S)
                continue
            except BaseException:
                os.close(descriptor)
                raise
            if _is_at(descriptor, path):
                return cls(path, descriptor)
            os.close(descriptor)  # its holder removed the file meanwhile: the name means another file now, or none

    @classmethod
    def inherited(cls, path: Path, descriptor: int) -> FileLock:
        """The lock that this process was given by its parent."""
        os.set_inheritable(descriptor, False)
        return cls(path, descriptor)

    def release(self, *, remove: bool) -> None:
        """Let go; with `remove` the file goes too, which is safe because everybody checks what they locked."""
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self.descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
