"""Removes what an engine left that was killed: its PostgreSQL processes, shared memory and directory.

Run as a module (`python -m pytest_dsql.local.cleanup DIRECTORY`) by the sentinel: a shell that waits for the engine's
end and does nothing when that was an orderly one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from pytest_dsql.local.directories import ALIVE_SUFFIX, ENGINE_NAME_LENGTH
from pytest_dsql.local.locks import FileLock

_ENGINE_NAME: Final = re.compile(rf"[0-9a-f]{{{ENGINE_NAME_LENGTH}}}")

_SYSV_SEGMENTS: Final = Path("/proc/sysvipc/shm")
_IPC_RMID: Final = 0
_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.01

#: Waits for a line or for the end of the engine, whichever comes first; lives through the terminal's signals.
_SENTINEL: Final = """trap '' HUP INT TERM; read -r word && exit 0; exec "$0" -P -m pytest_dsql.local.cleanup "$1" """


@final
class Sentinel:
    """A tiny process that cleans up when this one is killed without having said `dismiss`."""

    def __init__(self, directory: Path, lock: FileLock) -> None:
        # It holds the engine's lock too: whoever wants to start anew waits until it is done.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SENTINEL, sys.executable, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock.descriptor,),
            start_new_session=True,
            cwd="/",
        )

    def dismiss(self) -> None:
        """Tell it that all is done, and wait for its end."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(b"done\n")


def remove_engine_directory(directory: Path) -> None:
    """Stop every PostgreSQL whose data lies in an engine's directory, and remove the directory.

    The caller holds the engine's lock, or is its sentinel. Persistent data is only linked there, and stays.
    """
    segments = [segment for path in directory.glob("*/data/postmaster.pid") if (segment := _segment(path)) is not None]
    _end_servers(directory)
    for segment in segments:
        _remove_segment(segment)
    shutil.rmtree(directory, ignore_errors=True)


def forget_dead_server(data: Path) -> None:
    """Remove the lock file of a server that was killed, when nothing runs in its data directory any more.

    PostgreSQL asks only whether there is a process of that number, and so takes one that is dead and not yet collected
    by its parent, or any other program that has the number now, for a server. The caller has locked the directory.
    """
    path = data / "postmaster.pid"
    try:
        directory = path.read_text().splitlines()[1]
    except (OSError, IndexError):
        return
    if any(directory in words for _, words in command_lines()):
        return
    if (segment := _segment(path)) is not None:
        _remove_segment(segment)
    path.unlink(missing_ok=True)


def sweep(base: Path) -> None:
    """Remove what killed engines left under `base`; engines that live hold their lock and are left alone."""
    for directory in list(base.iterdir()):
        if _ENGINE_NAME.fullmatch(directory.name):
            remove_if_dead(directory)


def remove_if_dead(directory: Path) -> bool:
    """Remove an engine's directory, and what runs in it, unless the engine lives; whether it is gone now."""
    lock = FileLock.acquire(directory.with_name(directory.name + ALIVE_SUFFIX), None)
    if lock is None:
        return False
    try:
        remove_engine_directory(directory)
    finally:
        lock.release(remove=True)
    with contextlib.suppress(OSError):  # other engines are there
        directory.parent.rmdir()
    return True


def _end_servers(directory: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    hurry = signal.SIGQUIT
    # Looking again also finds the server that was about to start when its engine was killed.
    while servers := _servers(directory):
        if time.monotonic() > deadline:
            hurry = signal.SIGKILL
        for pid in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, hurry)
        time.sleep(_POLL_S)


def _servers(directory: Path) -> list[int]:
    """The processes that were started as a server in `directory`: process ids are used again, command lines are not."""
    below = f"{directory}{os.sep}"
    return [
        pid
        for pid, command in command_lines()
        if Path(command[0]).name in ("postgres", "unshare") and any(word.startswith(below) for word in command)
    ]


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """The processes of this machine with the words of their command lines."""
    processes = Path("/proc")
    if (processes / "self" / "cmdline").exists():
        for path in processes.glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                yield int(path.parent.name), path.read_bytes().decode(errors="replace").split("\0")
        return
    listing = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=False)
    for line in listing.stdout.splitlines():
        pid, *command = line.split()
        yield int(pid), command or [""]


def _segment(path: Path) -> tuple[int, int] | None:
    """Key and id of the System V segment that guards a data directory, from its postmaster.pid.

    The file's lines: process, data directory, start, port, socket directory, address, "key id", status (PostgreSQL's
    src/include/utils/pidfile.h).
    """
    try:
        key, identifier = path.read_text().splitlines()[6].split()
        return int(key), int(identifier)
    except (OSError, ValueError, IndexError):
        return None


def _remove_segment(segment: tuple[int, int]) -> None:
    """Remove the segment of a server that was killed itself; one that ended in order has removed it.

    Where segments can't be listed (macOS) it stays: 56 bytes, until PostgreSQL or a restart of the machine removes it.
    """
    with contextlib.suppress(OSError):
        for line in _SYSV_SEGMENTS.read_text().splitlines()[1:]:
            fields = line.split()
            # Ids are used again, keys are made from the data directory's inode: both must fit.
            if (int(fields[0]) % 2**32, int(fields[1])) == (segment[0] % 2**32, segment[1]):
                ctypes.CDLL(None, use_errno=True).shmctl(segment[1], _IPC_RMID, None)


def main() -> None:
    """Clean up after the engine whose directory is the argument."""
    directory = Path(sys.argv[1])
    remove_engine_directory(directory)
    with contextlib.suppress(FileNotFoundError):
        directory.with_name(directory.name + ALIVE_SUFFIX).unlink()
    with contextlib.suppress(OSError):
        directory.parent.rmdir()


if __name__ == "__main__":
    main()
