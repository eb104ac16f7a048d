"""The engine's process: starts PostgreSQL, the gateway and the control socket, and ends with its last holder.

Everything that takes long overlaps: PostgreSQL is copied and started in a thread while this one imports the gateway.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import DsqlError, EngineError, MissingExtra
from pytest_dsql.local.account import choose_account
from pytest_dsql.local.changes import LIMITS_CHANGED
from pytest_dsql.local.cleanup import Sentinel, remove_engine_directory
from pytest_dsql.local.cluster import ACTIONS, Cluster
from pytest_dsql.local.cluster_commands import COMMANDS, ClusterCommand
from pytest_dsql.local.clusters import Clusters
from pytest_dsql.local.directories import CONTROL_SOCKET
from pytest_dsql.local.installation import find_installation
from pytest_dsql.local.locks import FileLock
from pytest_dsql.local.options import DEFAULT_REGION, EngineOptions
from pytest_dsql.local.persistent import DataDirectory
from pytest_dsql.local.principals import new_principal, to_json
from pytest_dsql.local.programs import reachable_installation
from pytest_dsql.local.row_limits import are_made
from pytest_dsql.local.spawn import CONNECTION_DESCRIPTOR, LOCK_DESCRIPTOR
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    import asyncio

    from pytest_dsql.local.control import Command, Connection, Message
    from pytest_dsql.local.gateway.server import Gateway
    from pytest_dsql.local.jobs import Jobs

#: What the gateway is made of; imported while PostgreSQL starts.
_NEEDED: Final = (
    "uvloop",
    "cryptography.x509",
    "postgast",
    "pytest_dsql.local.dialect",
    "pytest_dsql.local.gateway.server",
    "pytest_dsql.local.jobs",
)

#: How long clients may take to go when PostgreSQL is down.
_GOODBYE_S: Final = 0.25


def main() -> int:
    """Be an engine: read the options from the starter's connection, serve, and leave nothing behind."""
    # Away from the starter's terminal and its signals, and from whatever else it had open.
    os.setsid()
    os.closerange(LOCK_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
    starter = socket.socket(fileno=os.dup(CONNECTION_DESCRIPTOR))
    _replace_by_null(CONNECTION_DESCRIPTOR)
    order = _read_order(starter)
    directory = Path(order["directory"])
    lock = FileLock.inherited(Path(order["lock"]), LOCK_DESCRIPTOR)
    sentinel = Sentinel(directory, lock)
    engine = EngineProcess(directory, EngineOptions.from_json(order["options"]))
    try:
        return engine.run(starter)
    finally:
        # In this order: the lock is free only when nothing is left.
        remove_engine_directory(directory)
        sentinel.dismiss()
        lock.release(remove=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()


def _replace_by_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, descriptor)
    os.close(null)


def _read_order(starter: socket.socket) -> dict[str, Any]:
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = starter.recv(4096)
        if not chunk:
            sys.exit("the starter is gone")
        line += chunk
    order: dict[str, Any] = json.loads(line)
    return order


@final
class EngineProcess:
    """One engine: its clusters, its gateway, its control socket."""

    def __init__(self, directory: Path, options: EngineOptions) -> None:
        self._directory = directory
        self._options = options
        self._started = time.monotonic()
        self._reason: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._clusters: Clusters
        self._gateway: Gateway
        self._jobs: Jobs
        self._connections: set[Connection]
        self._about: dict[str, Any] = {}

    def run(self, starter: socket.socket) -> int:
        """Serve until the end; give the process's exit status. The starter is told why when it fails to start."""
        try:
            self._clusters, installation = self._make_clusters()
            self._about["postgresql"] = installation
            with ThreadPoolExecutor(1) as pool:
                data = self._options.data
                prepared = pool.submit(self._clusters.add_default, DataDirectory(data) if data is not None else None)
                try:
                    return self._run_loop(starter, prepared)
                finally:
                    with contextlib.suppress(DsqlError):
                        prepared.result()
                    self._clusters.close()
        except DsqlError as error:
            _report(starter, str(error))
            return 1
        except Exception as error:
            _report(starter, f"{type(error).__name__}: {error}")
            raise

    def _make_clusters(self) -> tuple[Clusters, str]:
        installation = find_installation()
        account = choose_account(self._options.account)
        if account.kind == "other":
            # That account must be able to pass through to its own directories; it can't list ours.
            for directory in (self._directory.parent, self._directory):
                directory.chmod(0o711)
            programs = self._directory / "programs"
            programs.mkdir(mode=0o755)
            installation = reachable_installation(installation, account, programs)
        clusters = Clusters(
            self._directory,
            installation,
            account,
            region=self._options.region or DEFAULT_REGION,
            rules=self._options.rules or date.today(),  # the user's day is what "today's rules" means
            ended=self._cluster_ended,
            limits=self._options.limits,
            durable=self._options.durable,
            peers=self._options.peers,
            trouble=self._options.trouble(),
            asleep=self._options.asleep,
        )
        return clusters, installation.describe()

    def _run_loop(self, starter: socket.socket, prepared: Future[Cluster]) -> int:
        try:
            for module in _NEEDED:
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise MissingExtra(f"the embedded engine (module {error.name!r})", "local") from error
        import asyncio

        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._serve(starter, prepared))

    async def _serve(self, starter: socket.socket, prepared: Future[Cluster]) -> int:
        import asyncio

        from pytest_dsql.local.control import ControlServer
        from pytest_dsql.local.gateway.authority import CertificateAuthority
        from pytest_dsql.local.gateway.server import Gateway
        from pytest_dsql.local.jobs import Jobs

        loop = self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._finish, f"the engine was ended by {number.name}")
        authority = CertificateAuthority(self._directory)
        authority.root_file.chmod(0o644)
        self._gateway = Gateway(self._clusters, authority)
        self._jobs = Jobs()
        cluster = await asyncio.wrap_future(prepared)
        await _settle(cluster)
        self._jobs.start(cluster)
        try:
            port = await self._gateway.start(self._options.port)
        except OSError as error:
            raise EngineError(f"port {self._options.port} on 127.0.0.1: {error.strerror}") from error
        self._about |= {"port": port, "ca_file": str(authority.root_file)}
        control = ControlServer(
            {
                "hold": self._hold,
                "describe": self._describe,
                "status": self._status,
                "new_cluster": self._new_cluster,
                "remove_cluster": self._remove_cluster,
                "add_principal": self._add_principal,
                **{name: self._of_cluster(command) for name, command in COMMANDS.items()},
            },
            self._done,
        )
        self._connections = control.connections
        await control.listen(self._directory / CONTROL_SOCKET)
        # What is loaded by now stays; each full collection would walk it, and hold every session up for 15 to 40 ms.
        gc.freeze()
        try:
            first = await control.adopt(starter)
            first.send({"ok": True, **await self._hold(first, {})})
            await self._end.wait()
        finally:
            await control.stop_listening()
            with contextlib.suppress(FileNotFoundError):
                (self._directory / CONTROL_SOCKET).unlink()
            closing = asyncio.create_task(self._gateway.close())
            await self._jobs.close()
            await loop.run_in_executor(None, self._clusters.close)
            # Idle clients don't answer TLS's goodbye; they have been told, and the process's end does the rest.
            await asyncio.wait({closing}, timeout=_GOODBYE_S)
            if self._reason is not None:
                await control.tell({"event": "ended", "reason": self._reason})
        return 0 if self._reason is None else 1

    async def _hold(self, connection: Connection, _request: Message) -> Message:
        assert self._end is not None
        if self._end.is_set():
            raise EngineError("the engine is ending")
        connection.holds = True
        return await self._describe(connection, {})

    async def _describe(self, _connection: Connection, _request: Message) -> Message:
        principal = self._clusters.principal
        return {
            "engine": {
                **self._about,
                "pid": os.getpid(),
                "cluster": _cluster(self._clusters.default()),
                "access_key_id": principal.access_key_id,
                "secret_access_key": principal.secret_access_key,
            }
        }

    async def _status(self, _connection: Connection, _request: Message) -> Message:
        return {
            "status": {
                "holders": sum(connection.holds for connection in self._connections),
                "clusters": [_cluster(cluster) for cluster in self._clusters.all()],
                "sessions": self._gateway.sessions,
                "uptime_s": time.monotonic() - self._started,
            }
        }

    async def _new_cluster(self, connection: Connection, _request: Message) -> Message:
        assert self._loop is not None
        cluster = await self._loop.run_in_executor(None, self._clusters.add)
        connection.clusters.add(cluster.id)
        await _settle(cluster)
        self._jobs.start(cluster)
        return {"cluster": _cluster(cluster)}

    async def _remove_cluster(self, connection: Connection, request: Message) -> Message:
        assert self._loop is not None
        cluster_id = str(request.get("id"))
        await self._loop.run_in_executor(None, self._clusters.remove, cluster_id)
        await self._jobs.stop(cluster_id)
        connection.clusters.discard(cluster_id)
        return {}

    async def _add_principal(self, _connection: Connection, request: Message) -> Message:
        principal = new_principal(str(request.get("arn")), request.get("actions", ACTIONS))
        self._clusters.add_principal(principal)
        return {"principal": to_json(principal)}

    def _of_cluster(self, command: ClusterCommand) -> Command:
        async def run(_connection: Connection, request: Message) -> Message:
            return await command(self._clusters.by_id(str(request.get("cluster"))), request)

        return run

    async def _done(self, connection: Connection) -> bool:
        held = connection.holds
        connection.holds = False
        for cluster_id in connection.clusters:
            assert self._loop is not None
            with contextlib.suppress(EngineError):  # somebody else removed it
                await self._loop.run_in_executor(None, self._clusters.remove, cluster_id)
            await self._jobs.stop(cluster_id)
        if held and not any(other.holds for other in self._connections):
            assert self._end is not None
            self._end.set()
            return False
        connection.send({"event": "released"})
        return True

    def _finish(self, reason: str) -> None:
        if self._end is not None and not self._end.is_set():
            self._reason = reason
            self._end.set()

    def _cluster_ended(self, reason: str) -> None:
        # Clusters exist before the loop does; the first of them is waited for in it, so none can end unnoticed.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._finish, reason)


async def _settle(cluster: Cluster) -> None:
    """Let the parts of the engine know of a new cluster's limits, before anybody can connect."""
    if not are_made(cluster.limits, cluster.rules):
        for told in LIMITS_CHANGED:
            await told(cluster)


def _cluster(cluster: Cluster) -> dict[str, Any]:
    endpoints = [{"id": one.id, "region": one.region, "host": one.host} for one in cluster.endpoints]
    return {**endpoints[0], "rules": cluster.rules.isoformat(), "endpoints": endpoints}


def _report(starter: socket.socket, error: str) -> None:
    with contextlib.suppress(OSError):
        starter.sendall(json.dumps({"ok": False, "error": mask(error)}).encode() + b"\n")
