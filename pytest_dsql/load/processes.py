"""Worker processes as the controller sees them: started, listened to, noticed when they die, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from pytest_dsql.errors import LoadFailed
from pytest_dsql.load.channel import Channel
from pytest_dsql.load.shipping import pack, search_path
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from distributed import Client

    from pytest_dsql.load.clocks import ClockDifference
    from pytest_dsql.load.loop import Loop
    from pytest_dsql.load.plan import BurstShare, WorkerShare

#: A worker reports four times a second; one that is silent for this long is stuck in a transaction's own code.
SILENCE_S: Final = 60.0
#: How long a worker that was told to end may take.
_END_S: Final = 2.0
_TAIL: Final = 2000


Job: TypeAlias = "WorkerShare | BurstShare"


class Worker(Protocol):
    """A worker process as the controller sees it, wherever it runs."""

    @property
    def index(self) -> int:
        """Its number, from 0."""

    finished: bool  #: it has said its last word, so its end is no death
    heard_ns: int  #: when it last said something
    clock: ClockDifference | None  #: how far its host's clock is from ours; None on this host
    channel: Channel

    def assign(self, job: Job) -> None:
        """Send the work."""

    def kill(self, because: str) -> None:
        """End the process at once; its death is then reported with this reason."""

    def close(self) -> None:
        """End the process and leave nothing behind."""


@final
class WorkerProcess:
    """One worker process of this host and the channel to it."""

    def __init__(
        self,
        loop: Loop,
        index: int,
        *,
        received: Callable[[Worker, Any], None],
        died: Callable[[Worker, str], None],
    ) -> None:
        self.index: Final = index
        self.finished = False  #: it has said its last word, so its end is no death
        self.heard_ns = perf_counter_ns()  #: when it last said something
        self.clock: ClockDifference | None = None  #: it is ours
        self._ended_because = ""
        self._received = received
        self._died = died
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        ours, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                # -P: a module lying in the current directory must not stand in for one of the worker's own.
                [sys.executable, "-P", "-m", "pytest_dsql.load.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=_environment(),
                # Ctrl-C on the terminal is the controller's to handle; it ends the workers in order.
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._output.close()
            raise LoadFailed(f"a worker process of the load generator could not be started: {error}") from error
        finally:
            theirs.close()
        self.channel = Channel(loop, ours, received=self._on_message, closed=self._on_close)

    def assign(self, job: Job) -> None:
        """Send the work. Raises UsageError when something in it can't be sent to another process."""
        self.channel.send(("job", search_path(), pack(job)))

    def _on_message(self, message: Any) -> None:
        self.heard_ns = perf_counter_ns()
        self._received(self, message)

    def _on_close(self) -> None:
        """The process has closed its end: it is finished, or it died."""
        try:
            status = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if not self.finished:
            self._died(self, self._epitaph(status))

    def _epitaph(self, status: int) -> str:
        how = f"ended with status {status}"
        if self._ended_because:
            how = f"had to be ended: {self._ended_because}"
        elif status < 0:
            try:
                how = f"was killed by {signal.Signals(-status).name}"
            except ValueError:
                how = f"was killed by signal {-status}"
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _TAIL))
        tail = mask(self._output.read().decode("utf-8", "replace")).strip()
        return f"worker process {self.index + 1} {how}" + (f"; its last words: {tail}" if tail else "")

    def kill(self, because: str) -> None:
        """End the process at once; its death is then reported with this reason."""
        if self.process.poll() is None:
            self._ended_because = because
            self.process.kill()

    def close(self) -> None:
        """End the process and leave nothing behind."""
        self.finished = True
        self.channel.close()  # a worker that listens ends by itself when its channel closes
        try:
            self.process.wait(_END_S if self.process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            self._output.close()


@final
class Fleet:
    """The worker processes of one cell or burst: on this host, or on those of a Dask scheduler's workers."""

    def __init__(
        self,
        loop: Loop,
        *,
        received: Callable[[Worker, Any], None],
        died: Callable[[Worker, str], None],
        scheduler: Client | None = None,
    ) -> None:
        self.workers: list[Worker] = []
        self._loop = loop
        self._received = received
        self._died = died
        self._scheduler = scheduler
        self._closed = False

    def start(self, jobs: Sequence[Job]) -> None:
        """Start one worker per job. Raises LoadFailed when a process can't be started, UsageError as `assign` does."""
        make = self._on_this_host if self._scheduler is None else self._on_others(self._scheduler)
        for index, job in enumerate(jobs):
            worker = make(index)
            self.workers.append(worker)
            worker.assign(job)
        self._watch()

    def _on_this_host(self, index: int) -> Worker:
        return WorkerProcess(self._loop, index, received=self._received, died=self._died)

    def _on_others(self, scheduler: Client) -> Callable[[int], Worker]:
        from pytest_dsql.load.hosts import RemoteWorker, workers_of

        addresses = workers_of(scheduler)

        def make(index: int) -> Worker:
            return RemoteWorker(
                self._loop,
                index,
                client=scheduler,
                address=addresses[index % len(addresses)],
                received=self._received,
                died=self._died,
            )

        return make

    @property
    def clock_uncertainty_ns(self) -> int | None:
        """How well the clocks of the workers' hosts are known at worst; None when they all run here."""
        known = [worker.clock.uncertainty_ns for worker in self.workers if worker.clock is not None]
        return max(known) if known else None

    def tell(self, *message: Any) -> None:
        """Send a message to every worker."""
        for worker in self.workers:
            worker.channel.send(message)

    def _watch(self) -> None:
        """Kill a worker that fell silent: its death then ends the cell like any other."""
        if self._closed:
            return
        now_ns = perf_counter_ns()
        for worker in self.workers:
            if not worker.finished and now_ns - worker.heard_ns > SILENCE_S * 1e9:
                worker.kill(f"it reported nothing for {SILENCE_S:g} s, so a transaction's own code seems stuck")
        self._loop.at(now_ns + 1_000_000_000, self._watch)

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in self.workers:
            worker.finished = True
            worker.channel.close()
        for worker in self.workers:
            worker.close()


def _environment() -> dict[str, str]:
    """Return the workers' environment: ours, and where this package is when only our search path knows."""
    environment = dict(os.environ)
    home = str(Path(__file__).parents[2])
    if "site-packages" not in Path(home).parts:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH", "")]))
    return environment
