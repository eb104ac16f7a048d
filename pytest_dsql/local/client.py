"""The handle to an engine: starts one or attaches to one, holds it, and lets it go."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.cleanup import remove_engine_directory, remove_if_dead, sweep
from pytest_dsql.local.cluster import ACTIONS, Principal
from pytest_dsql.local.directories import ALIVE_SUFFIX, CONTROL_SOCKET, ENGINE_NAME_LENGTH, runtime_base
from pytest_dsql.local.locks import FileLock
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.local.persistent import DataDirectory
from pytest_dsql.local.principals import from_json
from pytest_dsql.local.spawn import START_TIMEOUT_S, first_answer, read_line, spawn_engine

if TYPE_CHECKING:
    from pytest_dsql.local.dpu.meter import DpuTotals

_ANSWER_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.005


@dataclass(frozen=True)
class LocalEndpoint:
    """One host name of a cluster: the only one, or that of one of its Regions."""

    id: str
    region: str
    host: str


@dataclass(frozen=True)
class LocalCluster:
    """One of the engine's clusters."""

    id: str
    region: str
    host: str
    endpoints: tuple[LocalEndpoint, ...] = ()  #: all of them, the one above first


@dataclass(frozen=True)
class LocalCredentials:
    """Throw-away keys: the engine accepts tokens signed with them, and nothing else does."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


@final
class Engine:
    """A running engine, held by this object: it ends when its last holder closes, or dies.

    Thread-safe. A context manager that closes on exit.
    """

    def __init__(self, connection: socket.socket, about: Mapping[str, Any], control: Path, pid: int | None) -> None:
        self._connection = connection
        self._received = b""
        self._lock = threading.Lock()
        self._child = pid
        self._ended: str | None = None
        self._closed = False
        self.control: Final = control  #: the control socket, for `Engine.attach`
        self.pid: Final[int] = about["pid"]  #: the engine's process
        self.port: Final[int] = about["port"]  #: where the gateway listens, on 127.0.0.1
        self.ca_file: Final = Path(about["ca_file"])  #: the root certificate, for `sslrootcert`
        self.postgresql: Final[str] = about["postgresql"]  #: which PostgreSQL runs, for people
        self.cluster: Final = _cluster(about["cluster"])  #: the cluster made at start
        #: The keys whose tokens the engine accepts.
        self.credentials: Final = LocalCredentials(about["access_key_id"], about["secret_access_key"])

    @classmethod
    def start_or_attach(cls, name: str | None = None, options: EngineOptions | None = None) -> Self:
        """Hold the engine of this `name`, starting it when there is none; without a name always a new one.

        Processes that ask for the same name at the same time get the same engine, with the options of the first.
        Raises EngineError when it can't start, with the reason, and UsageError when `options.data` can't be used;
        nothing is left then.
        """
        options = options or EngineOptions()
        digits = (
            hashlib.sha256(name.encode()).hexdigest() if name is not None else secrets.token_hex(ENGINE_NAME_LENGTH)
        )
        key = digits[:ENGINE_NAME_LENGTH]
        if options.data is not None:
            DataDirectory(options.data).check(options.region)
        _check_port(options.port)
        start = _take_start_lock(key)
        try:
            base = start.path.parent
            sweep(base)
            control = base / key / CONTROL_SOCKET
            if name is not None and (engine := cls._attach(control)) is not None:
                return engine
            return cls._start(base / key, options)
        finally:
            start.release(remove=True)
            with contextlib.suppress(OSError):
                base.rmdir()

    @classmethod
    def attach(cls, control: Path) -> Self:
        """Hold the engine with this control socket. Raises EngineError when it is gone."""
        engine = cls._attach(control)
        if engine is None:
            raise EngineError(f"no engine answers at {control}: it has ended")
        return engine

    @classmethod
    def _attach(cls, control: Path) -> Self | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            connection.connect(str(control))
            connection.sendall(b'{"command":"hold"}\n')
            line, _ = read_line(connection, b"")
            answer = json.loads(line) if line else {}
            if answer.get("ok"):
                return cls(connection, answer["engine"], control, None)
        except OSError:
            pass  # it is gone, or about to be
        connection.close()
        return None

    @classmethod
    def _start(cls, directory: Path, options: EngineOptions) -> Self:
        lock = FileLock.acquire(directory.with_name(directory.name + ALIVE_SUFFIX), _END_TIMEOUT_S)
        if lock is None:
            raise EngineError(
                f"the engine in {directory} has been ending for {_END_TIMEOUT_S:.0f} s; see its log there"
            )
        ours, theirs = socket.socketpair()
        started = False
        try:
            remove_engine_directory(directory)
            directory.mkdir(mode=0o700)
            pid = spawn_engine(directory, theirs, lock)
            theirs.close()
            ours.settimeout(START_TIMEOUT_S)
            order = {"directory": str(directory), "lock": str(lock.path), "options": options.to_json()}
            about = first_answer(ours, order, directory, pid)
            started = True
            return cls(ours, about, directory / CONTROL_SOCKET, pid)
        finally:
            theirs.close()
            if started:
                os.close(lock.descriptor)  # the engine holds it now
            else:
                ours.close()  # an engine that lives ends when it sees this
                lock.release(remove=False)
                with contextlib.suppress(EngineError):
                    _await_end(directory)

    def new_cluster(self) -> LocalCluster:
        """Make a further cluster: its own host name, its own PostgreSQL. It goes with this holder."""
        return _cluster(self._ask("new_cluster")["cluster"])

    def remove_cluster(self, cluster_id: str) -> None:
        """Remove a cluster that `new_cluster` made, with its data."""
        self._ask("remove_cluster", id=cluster_id)

    def add_principal(self, arn: str, actions: Collection[str] = ACTIONS) -> Principal:
        """Have the engine accept tokens of a further identity, with keys made for it, until it ends.

        `arn` is that of a role, a user or a session of a role (`arn:aws:sts::123456789012:assumed-role/name/session`),
        `actions` what its policy allows: a principal without `DbConnectAdmin` can't be `admin`. Which other roles it
        may be, `AWS IAM GRANT` says. Raises EngineError for what is no such ARN.
        """
        return from_json(self._ask("add_principal", arn=arn, actions=sorted(actions))["principal"])

    def ask_cluster(self, command: str, cluster: LocalCluster, **arguments: object) -> dict[str, Any]:
        """Send one of `cluster_commands.COMMANDS` for a cluster, and give the answer. Raises EngineError.

        `controls` has the methods for people.
        """
        return self._ask(command, cluster=cluster.id, **arguments)

    def dpu(self, cluster: LocalCluster | None = None) -> DpuTotals:
        """What a cluster, by default the first, has used since the start or the last `reset_dpu`, in DPU."""
        from pytest_dsql.local.dpu.meter import DpuTotals

        return DpuTotals(**self.ask_cluster("dpu", cluster or self.cluster)["dpu"])

    def reset_dpu(self, cluster: LocalCluster | None = None) -> None:
        """Have a cluster's DPU counted from now on."""
        self.ask_cluster("reset_dpu", cluster or self.cluster)

    def status(self) -> dict[str, Any]:
        """What the engine is doing: `holders`, `clusters`, `sessions`, `uptime_s`."""
        status: dict[str, Any] = self._ask("status")["status"]
        return status

    def fileno(self) -> int:
        """A descriptor that becomes readable when the engine has something to say: that it ended."""
        return self._connection.fileno()

    def ended(self) -> str | None:
        """Why the engine ended although it was held; None while it lives."""
        with self._lock:
            if self._ended is None and not self._closed:
                self._connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    self._next_answer()
                self._connection.settimeout(_ANSWER_TIMEOUT_S)
            return self._ended

    def _ask(self, command: str, **arguments: object) -> dict[str, Any]:
        with self._lock:
            if self._closed:
                raise EngineError("this handle to the engine was closed")
            answer: dict[str, Any] | None = None
            if self._ended is None:
                with contextlib.suppress(BrokenPipeError):  # what it said before it went is still to be read
                    self._connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
                try:
                    answer = self._next_answer()
                except TimeoutError:
                    # A late answer would be taken for the next one, so this handle is of no more use.
                    self._ended = f"it did not answer {command!r} for {_ANSWER_TIMEOUT_S:.0f} s"
            if answer is None:
                raise EngineError(f"the embedded engine has ended: {self._ended}")
        if not answer["ok"]:
            raise EngineError(answer["error"])
        return answer

    def _next_answer(self) -> dict[str, Any] | None:
        """The next answer; None when the engine ended instead, and then `_ended` tells why."""
        message = self._next_message()
        if message is None:
            self._ended = "its process was killed"
        elif message.get("event") == "ended":
            self._ended = message["reason"]
            message = None
        return message

    def _next_message(self) -> dict[str, Any] | None:
        """The next line; None at the end of the connection."""
        line = b""
        with contextlib.suppress(ConnectionResetError):
            line, self._received = read_line(self._connection, self._received)
        return json.loads(line) if line else None

    def close(self) -> None:
        """Let the engine go; when nobody else holds it, wait until nothing of it is left. Twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            released = False
            try:
                self._connection.settimeout(_END_TIMEOUT_S)
                self._connection.shutdown(socket.SHUT_WR)
                while (message := self._next_message()) is not None:
                    released = released or message.get("event") == "released"
            except OSError:
                pass  # it ended before us; what is left is waited for below
            finally:
                self._connection.close()
        if not released:
            _await_end(self.control.parent)
        self._reap(wait=not released)

    def _reap(self, *, wait: bool) -> None:
        if self._child is not None:
            with contextlib.suppress(ChildProcessError):  # the program collects its children itself
                os.waitpid(self._child, 0 if wait else os.WNOHANG)
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def _cluster(values: Mapping[str, Any]) -> LocalCluster:
    endpoints = tuple(LocalEndpoint(**endpoint) for endpoint in values["endpoints"])
    return LocalCluster(id=values["id"], region=values["region"], host=values["host"], endpoints=endpoints)


def _check_port(port: int) -> None:
    # Before anything is created; the gateway asks again, and has the last word.
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EngineError(f"port {port} on 127.0.0.1 can't be used: {error.strerror}") from None


def _take_start_lock(key: str) -> FileLock:
    while True:
        base = runtime_base()
        try:
            lock = FileLock.acquire(base / f"{key}.start", START_TIMEOUT_S)
        except FileNotFoundError:
            continue  # an engine that ended removed the empty base
        if lock is None:
            raise EngineError(f"another process has been starting the same engine for {START_TIMEOUT_S:.0f} s")
        return lock


def _await_end(directory: Path) -> None:
    """Wait until an engine has removed everything, its lock file last; do it for one that can't any more.

    A new engine of the same name ends the waiting too.
    """
    deadline = time.monotonic() + _END_TIMEOUT_S
    lock_file = directory.with_name(directory.name + ALIVE_SUFFIX)
    while lock_file.exists() and not _answers(directory / CONTROL_SOCKET):
        with contextlib.suppress(FileNotFoundError):
            if remove_if_dead(directory):
                return
        if time.monotonic() > deadline:
            raise EngineError(f"the engine in {directory} did not end within {_END_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _answers(control: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(control))
        return True
    return False
