"""What runs on another host: an actor of a Dask worker that starts one of our worker processes and passes messages.

A Dask task may not fork and shares its process with others, so the load is driven by a process of its own, exactly as
on this host. The agent carries its messages to and fro; but the requests it reports are counted here, beside it, and
only the counts go on, once a second: no more of them at a higher rate, and no work for the process that measures.
"""

from __future__ import annotations

import os
import pickle
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.load.wire import pack_counts

if TYPE_CHECKING:
    from pytest_dsql.load.digest import Condenser

#: An agent that nobody has asked anything for so long ends its process: the controller is gone.
ABANDONED_S: Final = 30.0
#: How often counts are passed on.
COUNTS_S: Final = 1.0
_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 18


@final
class Agent:
    """One worker process on this host. Its methods are called from afar, one at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._sock = ours
        self._directory = Path(tempfile.mkdtemp(prefix="pytest-dsql-agent-"))
        self._output = (self._directory / "output").open("w+b")
        self._incoming = bytearray()
        self._asked_s = time.monotonic()
        self._nothing = b""  #: an empty `Condenser` of the cell, pickled; empty while requests are not counted
        self._counted: Condenser | None = None  #: what was counted since counts were passed on; None: nothing
        self._passed_on_s = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest_dsql.load.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        theirs.close()
        threading.Thread(target=self._watch, name="pytest-dsql agent", daemon=True).start()

    def version(self) -> str:
        """The version of this package here."""
        from importlib.metadata import version

        return version("pytest-dsql")

    def clock_ns(self) -> int:
        """The clock that worker processes of this host measure with."""
        self._asked_s = time.monotonic()
        return time.perf_counter_ns()

    def keep(self, content: bytes) -> str:
        """Keep a file (a certificate) for the worker process; returns its path here."""
        handle, path = tempfile.mkstemp(dir=self._directory)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path

    def send(self, message: bytes) -> None:
        """Pass a pickled message on to the process."""
        self._asked_s = time.monotonic()
        self._sock.sendall(_LENGTH.pack(len(message)) + message)

    def count(self, nothing: bytes) -> None:
        """Count the requests that the process reports; `nothing` is a pickled `Condenser`, its window by our clock."""
        self._nothing = nothing

    def poll(self, patience_s: float) -> tuple[list[bytes], str | None]:
        """Return what the process has said, pickled, and how it ended; waits for something, but not for long."""
        self._asked_s = time.monotonic()
        messages: list[bytes] = []
        ended = None
        deadline = time.monotonic() + patience_s
        while not messages and ended is None and (left := deadline - time.monotonic()) > 0:
            if not select.select([self._sock], [], [], left)[0]:
                break
            try:
                data = self._sock.recv(_CHUNK)
            except OSError:
                data = b""
            if not data:
                ended = self._epitaph()
            self._incoming += data
            while len(self._incoming) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._incoming)
                end = _LENGTH.size + length
                if len(self._incoming) < end:
                    break
                messages.append(bytes(self._incoming[_LENGTH.size : end]))
                del self._incoming[:end]
        return self._count(messages, at_once=ended is not None) if self._nothing else messages, ended

    def _count(self, messages: list[bytes], *, at_once: bool) -> list[bytes]:
        """Count the reports among the messages; return the others, behind the counts when these are due."""
        others: list[bytes] = []
        for pickled in messages:
            message = pickle.loads(pickled)  # noqa: S301 - from our own process
            if message[0] != "report":
                others.append(pickled)
                continue
            if self._counted is None:
                self._counted = pickle.loads(self._nothing)  # noqa: S301 - from the controller
            self._counted.add(message[1])
        now_s = time.monotonic()
        if self._counted is not None and (others or at_once or now_s - self._passed_on_s >= COUNTS_S):
            self._passed_on_s = now_s
            counts = pack_counts(self._counted)
            self._counted = None
            return [pickle.dumps(("counts", counts)), *others]
        return others

    def _epitaph(self) -> str:
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._output.seek(0)
        words = self._output.read()[-2000:].decode("utf-8", "replace").strip()
        return f"ended with status {status}" + (f"; its last words: {words}" if words else "")

    def close(self) -> None:
        """End the process and leave nothing behind."""
        self._sock.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _watch(self) -> None:
        while self._process.poll() is None:
            time.sleep(1.0)
            if time.monotonic() - self._asked_s > ABANDONED_S:
                self._process.kill()
                self._process.wait()
                shutil.rmtree(self._directory, ignore_errors=True)
