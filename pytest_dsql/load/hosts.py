"""Many hosts: the same work sent to the workers of an existing Dask scheduler, seen as if they ran here.

Each worker process on another host has a relay here: a thread that speaks with the process's agent through Dask on one
side, and on the other through a socket with the controller's loop, in the protocol of a process on this host.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import MissingExtra, UsageError
from pytest_dsql.load.agent import Agent
from pytest_dsql.load.channel import Channel
from pytest_dsql.load.clocks import ClockDifference, compare
from pytest_dsql.load.digest import Condenser
from pytest_dsql.load.plan import BurstShare, WorkerShare
from pytest_dsql.load.shipping import pack
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from distributed import Client

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.load.loop import Loop

_LENGTH: Final = struct.Struct("!Q")
_CONNECT_S: Final = 10.0
#: An answer of an agent that takes longer means that its host is gone.
_ANSWER_S: Final = 20.0
#: How long an agent waits for something to tell before it answers that there is nothing.
_POLL_S: Final = 0.1


def open_scheduler(address: str) -> Client:
    """Connect to a Dask scheduler, like `tcp://10.0.0.5:8786`. Raises UsageError, MissingExtra."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise MissingExtra("load from many hosts (--dsql-scheduler)", "distributed") from error
    try:
        client: Client = Client(address, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, ImportError) as error:
        reason = mask(" ".join(str(error).split()))
        raise UsageError(f"--dsql-scheduler {address}: no scheduler answers there ({reason})") from error
    if not workers_of(client):
        client.close()  # type: ignore[no-untyped-call]  # distributed is not typed throughout
        raise UsageError(f"--dsql-scheduler {address}: the scheduler has no workers; start some: dask worker {address}")
    return client


def workers_of(client: Client) -> list[str]:
    """Return the addresses of a scheduler's workers, in a fixed order."""
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


@final
class RemoteWorker:
    """A worker process on another host; see `processes.WorkerProcess`, whose part it plays."""

    def __init__(
        self,
        loop: Loop,
        index: int,
        *,
        client: Client,
        address: str,
        received: Callable[[Any, Any], None],
        died: Callable[[Any, str], None],
    ) -> None:
        self.index: Final = index
        self.finished = False  #: it has said its last word, so its end is no death
        self.heard_ns = perf_counter_ns()
        self.clock: ClockDifference | None = None  #: how far its host's clock is from ours, once known
        self._address = address
        self._client = client
        self._received = received
        self._died = died
        self._epitaph = "said nothing"
        self._ended_because = ""
        self._stopping = threading.Event()
        ours, self._theirs = socket.socketpair()
        self.channel = Channel(loop, ours, received=self._on_message, closed=self._on_close)
        self._thread: threading.Thread | None = None

    def assign(self, job: WorkerShare | BurstShare) -> None:
        """Have the work begun there."""
        self._thread = threading.Thread(target=self._run, args=(job,), name=f"relay {self.index + 1}", daemon=True)
        self._thread.start()

    def _on_message(self, message: Any) -> None:
        self.heard_ns = perf_counter_ns()
        self._received(self, message)

    def _on_close(self) -> None:
        if not self.finished:
            why = f"had to be ended: {self._ended_because}" if self._ended_because else self._epitaph
            self._died(self, f"worker process {self.index + 1} on {self._address} {why}")

    def kill(self, because: str) -> None:
        """End the process; its death is then reported with this reason."""
        self._ended_because = because
        self._stopping.set()

    def close(self) -> None:
        """End the process and leave nothing behind."""
        self.finished = True
        self.channel.close()
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)

    # -- in the relay's thread -----------------------------------------------------------------------------------

    def _run(self, job: WorkerShare | BurstShare) -> None:
        with self._client.as_current():  # an actor asks its methods of the current client
            self._relay(job)

    def _relay(self, job: WorkerShare | BurstShare) -> None:
        agent: Any = None
        try:
            agent = self._client.submit(
                Agent, actor=True, workers=[self._address], allow_other_workers=False, pure=False
            ).result(timeout=_ANSWER_S)
            self._check_version(agent.version().result(timeout=_ANSWER_S))
            self.clock = compare(lambda: int(agent.clock_ns().result(timeout=_ANSWER_S)))
            packed = pack(_for_elsewhere(job, agent), elsewhere=True)
            agent.send(pickle.dumps(("job", None, packed))).result(timeout=_ANSWER_S)
            self._pass_messages(agent, self.clock, job)
        except UsageError as error:
            self._say(("failed", error))
        except Exception as error:  # whatever Dask raises when a worker of its own is gone
            self._epitaph = f"is out of reach ({type(error).__name__}: {mask(' '.join(str(error).split()))[:300]})"
        finally:
            self._theirs.close()
            if agent is not None:
                _close_quietly(agent)

    def _check_version(self, theirs: str) -> None:
        from importlib.metadata import version

        ours = version("pytest-dsql")
        if theirs != ours:
            raise UsageError(f"the Dask worker {self._address} has pytest-dsql {theirs}, and this host {ours}")

    def _pass_messages(self, agent: Any, clock: ClockDifference, job: WorkerShare | BurstShare) -> None:
        self._theirs.setblocking(False)
        outgoing = bytearray()
        while not self._stopping.is_set():
            try:
                data = self._theirs.recv(1 << 18)
            except BlockingIOError:
                data = None
            if data == b"":
                return  # the controller has closed its end
            outgoing += data or b""
            while len(outgoing) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(outgoing)
                if len(outgoing) < _LENGTH.size + length:
                    break
                message = pickle.loads(memoryview(outgoing)[_LENGTH.size : _LENGTH.size + length])  # noqa: S301 - ours
                del outgoing[: _LENGTH.size + length]
                message = clock.to_theirs(message)
                if message[0] == "start" and isinstance(job, WorkerShare):
                    agent.count(pickle.dumps(Condenser.of(job.plan, message[1]))).result(timeout=_ANSWER_S)
                agent.send(pickle.dumps(message)).result(timeout=_ANSWER_S)
            messages, ended = agent.poll(_POLL_S).result(timeout=_ANSWER_S)
            for pickled in messages:
                self._say(clock.to_ours(pickle.loads(pickled)))  # noqa: S301 - from our own process
            if ended is not None:
                self._epitaph = mask(ended)
                return

    def _say(self, message: tuple[Any, ...]) -> None:
        pickled = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._theirs.setblocking(True)
        try:
            self._theirs.sendall(_LENGTH.pack(len(pickled)) + pickled)
        except OSError:
            self._stopping.set()  # the controller has closed its end
        finally:
            self._theirs.setblocking(False)


def _close_quietly(agent: Any) -> None:
    with contextlib.suppress(Exception):  # its host may be gone, and with it the process
        agent.close().result(timeout=_ANSWER_S)


def _for_elsewhere(job: WorkerShare | BurstShare, agent: Any) -> WorkerShare | BurstShare:
    """Return the job with its certificate file where the other host has it."""

    def moved(endpoint: Endpoint) -> Endpoint:
        path = endpoint.sslrootcert
        if path is None or path == "system":
            return endpoint
        return replace(endpoint, sslrootcert=agent.keep(Path(path).read_bytes()).result(timeout=_ANSWER_S))

    if isinstance(job, BurstShare):
        return replace(job, endpoint=moved(job.endpoint))
    return replace(job, plan=replace(job.plan, endpoint=moved(job.plan.endpoint)))
