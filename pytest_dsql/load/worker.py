"""A worker process: `python -m pytest_dsql.load.worker FD` does one job and reports over the socket it was given."""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import traceback
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import DsqlError, LoadFailed, UsageError
from pytest_dsql.load.channel import Channel
from pytest_dsql.load.driver import REPORT_S, Driver
from pytest_dsql.load.health import quiet_collector
from pytest_dsql.load.holding import MOST_UNDER_WAY, HeldConnections
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.plan import BurstShare, WorkerShare
from pytest_dsql.load.recorder import Done
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint

#: Open files besides connections: libraries, certificates while connecting, the selector, the channel.
_OTHER_FILES: Final = 64


@final
class Worker:
    """One job, from its arrival to its last report."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = Loop()
        self._channel = Channel(self._loop, sock, received=self._on_message, closed=self._on_close)
        self._inbox: list[tuple[Any, ...]] = []
        self._driver: Driver | None = None
        self._beating = True

    def run(self) -> None:
        """Do the job; whatever prevents it is reported to the controller."""
        try:
            _, path, packed = self._next()
            if path is not None:  # from another host there comes none: its directories are not here
                sys.path[:] = path
            job = _unpack(packed)
            self._beat()
            if isinstance(job, WorkerShare):
                self._run_cell(job)
            else:
                self._run_burst(job)
        except DsqlError as error:
            self._channel.send(("failed", error))
        except Exception as error:
            traceback.print_exc()
            text = mask(" ".join(str(error).split()))
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = LoadFailed(
                f"the load generator failed: {type(error).__name__}: {text} ({place.filename}:{place.lineno})"
            )
            self._channel.send(("failed", failure))
        self._beating = False
        self._channel.drain()

    def _on_message(self, message: tuple[Any, ...]) -> None:
        if message[0] == "stop":
            if self._driver is not None:
                self._driver.stop()
            return
        self._inbox.append(message)
        self._loop.stop()

    def _on_close(self) -> None:
        raise SystemExit(0)  # the controller is gone, or has no more use for us

    def _next(self) -> tuple[Any, ...]:
        """Wait for the controller's next message."""
        while not self._inbox:
            self._loop.run()
        return self._inbox.pop(0)

    def _beat(self) -> None:
        """Tell the controller, until the cell reports by itself, that we are alive and how far connecting is."""
        if self._beating:
            made = self._driver.connects.stats.succeeded if self._driver is not None else 0
            self._channel.send(("alive", made))
            self._loop.at(perf_counter_ns() + int(REPORT_S * 1e9), self._beat)

    def _run_cell(self, share: WorkerShare) -> None:
        from pytest_dsql.connect.token import TokenSource

        share = replace(share, plan=replace(share.plan, endpoint=_in_utf8(share.plan.endpoint)))
        allow_descriptors(share.connections)
        over: list[bool] = []

        def finished() -> None:
            over.append(True)
            self._loop.stop()

        driver = self._driver = Driver(
            share,
            self._loop,
            TokenSource(share.plan.endpoint),
            report=lambda batch: self._channel.send(("report", batch)),
            finished=finished,
        )
        driver.connect_all()
        quiet_collector()
        self._channel.send(("ready", driver.connects.stats.succeeded))
        while (message := self._next())[0] == "rtt":
            self._channel.send(("rtt", driver.measure_rtt()))
        self._beating = False
        driver.schedule(message[1])
        while not over:
            self._loop.run()
        self._channel.send(("done", Done(driver.connects.stats, driver.worker_health, driver.arrivals)))

    def _run_burst(self, share: BurstShare) -> None:
        from pytest_dsql.connect.token import TokenSource

        share = replace(share, endpoint=_in_utf8(share.endpoint))
        allow_descriptors(share.connections if share.every_ns is None else min(share.connections, MOST_UNDER_WAY))
        tokens = TokenSource(share.endpoint)
        tokens.token()  # signed before, as a pool would have; also finds missing credentials before anything else
        held = HeldConnections(self._loop, share, tokens)
        self._channel.send(("ready", 0))
        _, start_ns = self._next()
        stats = held.make(start_ns)
        self._channel.send(("decided", stats, held.decided_ns))
        self._next()  # held until every worker's are decided
        held.close()


def _unpack(packed: bytes) -> WorkerShare | BurstShare:
    try:
        job: WorkerShare | BurstShare = pickle.loads(packed)  # noqa: S301 - from the process that started us
    except Exception as error:
        text = mask(" ".join(str(error).split()))
        raise UsageError(
            f"a worker process cannot load the transactions of the mix ({type(error).__name__}: {text})"
        ) from error
    return job


def _in_utf8(endpoint: Endpoint) -> Endpoint:
    """Text travels as UTF-8 whatever encoding the database has."""
    return replace(endpoint, parameters={"client_encoding": "UTF8", **endpoint.parameters})


def allow_descriptors(connections: int) -> None:
    """Raise this process's limit of open files to what the connections need, or say that it can't be raised."""
    import resource

    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"{connections} connections in one worker process need {needed} open files, and the limit is {hard}: "
            f"raise it (ulimit -n {needed}) or use more workers (--dsql-workers)"
        ) from error


def main() -> None:
    """Run as a process: the argument is the descriptor of the socket to the controller."""
    # Sent to the whole group of processes; the controller decides what becomes of us, and its end is ours.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Worker(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
