"""Ways to die, and to come back: connections that break with an RST, and PostgreSQL's processes."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

import psycopg

from pytest_dsql.local.client import Engine
from tests.local.adjudicator.racing import Connection
from tests.local.engines import connect


def break_connection(connection: Connection) -> None:
    """Break a client's connection at once, with an RST, whatever another thread is doing with it."""
    descriptor = connection.pgconn.socket
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Closing libpq's descriptor behind its back would let another file take its number.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)


def backends(engine: Engine) -> list[int]:
    """The processes of the engine's PostgreSQLs that serve clients of the role `admin`."""
    return [pid for pid in sorted(family(engine)) if b": admin " in _command_line(pid)]


def family(engine: Engine) -> set[int]:
    """The engine's process and everything below it."""
    descendants = {engine.pid}
    parents = {pid: parent for pid in _processes() if (parent := _parent(pid)) is not None}
    for _ in range(10):
        descendants |= {pid for pid, parent in parents.items() if parent in descendants}
    return descendants


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent(pid: int) -> int | None:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def assert_ends(connection: Connection) -> None:
    """A connection says within seconds that it is broken."""
    deadline = time.monotonic() + 120
    while not connection.closed:
        assert time.monotonic() < deadline, "it goes on"
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute("SELECT 1")
        time.sleep(0.02)


def again(engine: Engine) -> Connection:
    """Connect as soon as PostgreSQL is back; an engine that has ended instead fails the test with its reason."""
    deadline = time.monotonic() + 300
    while True:
        try:
            connection = connect(engine)
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            assert engine.ended() is None, engine.ended()
            assert time.monotonic() < deadline, "PostgreSQL did not come back"
            time.sleep(0.1)
        else:
            return connection
