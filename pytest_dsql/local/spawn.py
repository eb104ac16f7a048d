"""Starts the engine's process and waits for its first words; nothing secret is in its arguments or environment."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.directories import LOG
from pytest_dsql.local.locks import FileLock
from pytest_dsql.local.postgres import log_tail

#: The descriptors an engine's process is given: its starter's connection, and the lock that says that it is alive.
CONNECTION_DESCRIPTOR: Final = 0
LOCK_DESCRIPTOR: Final = 3

START_TIMEOUT_S: Final = 120.0


def spawn_engine(directory: Path, connection: socket.socket, lock: FileLock) -> int:
    """Start the engine's process; it gets its orders over the connection, nothing in its arguments."""
    # Out of the way of the numbers they will have there.
    sources = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in (connection.fileno(), lock.descriptor)
    ]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "pytest_dsql.local"],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, sources[0], CONNECTION_DESCRIPTOR),
                (os.POSIX_SPAWN_OPEN, 1, str(directory / LOG), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, sources[1], LOCK_DESCRIPTOR),
            ],
            setsigmask=(),
        )
    except OSError as error:
        raise EngineError(f"the engine's process can't be started ({sys.executable}): {error.strerror}") from error
    finally:
        for descriptor in sources:
            os.close(descriptor)


def _environment() -> dict[str, str]:
    # Nothing of the user's AWS account or PostgreSQL settings reaches the engine.
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PG", "DSQL_"))}


def first_answer(connection: socket.socket, order: Mapping[str, Any], directory: Path, pid: int) -> dict[str, Any]:
    """Give the engine its orders and wait until it is ready; what it said about itself. Raises EngineError."""
    try:
        connection.sendall(json.dumps(order).encode() + b"\n")
        line, _ = read_line(connection, b"")
    except TimeoutError:
        raise EngineError(f"the embedded engine was not ready within {START_TIMEOUT_S:.0f} s") from None
    except OSError:
        line = b""
    if not line:
        last_words = log_tail(directory / LOG)
        _reap(pid)
        raise EngineError(f"the embedded engine's process died at start: {last_words}")
    answer: dict[str, Any] = json.loads(line)
    if not answer["ok"]:
        _reap(pid)
        raise EngineError(f"the embedded engine did not start: {answer['error']}")
    about: dict[str, Any] = answer["engine"]
    return about


def read_line(connection: socket.socket, received: bytes) -> tuple[bytes, bytes]:
    """One line and what came after it; an empty line at the end of the connection."""
    while b"\n" not in received:
        chunk = connection.recv(65_536)
        if not chunk:
            return b"", b""
        received += chunk
    line, _, rest = received.partition(b"\n")
    return line, rest


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # the program collects its children itself
        os.waitpid(pid, 0)
