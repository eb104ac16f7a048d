"""The job runner: asynchronous jobs of a cluster are taken up, finished and forgotten when their time has come.

The statements that submit jobs, and what a job does, are in dialect/jobs.sql; here is only when. A job's time is
measured on the cluster's clock, so that moving the clock finishes jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect.rewriting import literal
from pytest_dsql.local.gateway.opening import BackendRefused
from pytest_dsql.local.gateway.superuser import QueryFailed, SuperuserConnection

_LOG: Final = logging.getLogger(__name__)

#: How long a finished job is shown, in seconds (AWS user guide, "Systems tables and commands").
_SHOWN_S: Final = 1_800.0
#: The part of a job's time in which it is only `submitted`.
_SUBMITTED: Final = 0.2
#: How often the limits are asked for while a job is waiting: they may be changed meanwhile.
_LOOK_S: Final = 0.25
#: Until a job is tried again that could not get at its table, and until a lost connection is opened again.
_RETRY_S: Final = 0.1

#: A job waits for nobody longer than this: others are due too. Its own work may take as long as it takes.
_SETTINGS: Final = {
    "application_name": "jobs",
    "default_transaction_isolation": "read committed",
    "lock_timeout": "200ms",
    "statement_timeout": "0",
}

#: What the runner tries again without end, and how often it tries what else went wrong.
_BUSY: Final = ("55P03", "40001", "40P01")
_TRIES: Final = 20

#: The types of jobs whose end changes the catalog that other sessions know.
_CATALOG_JOBS: Final = ("INDEX_BUILD", "VALIDATE_CONSTRAINT")


@final
@dataclass(slots=True)
class _Job:
    """An unfinished job."""

    kind: str
    submitted_at: float  #: on the cluster's clock
    started: bool
    present: bool = True  #: what it works on is there
    next_try: float = 0.0  #: on the cluster's clock
    faults: int = 0


@final
class JobRunner:
    """Runs the jobs of one cluster as long as its task lives."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._woken = asyncio.Event()
        self._moved_s = cluster.clock.moved_s
        self._jobs: dict[str, _Job] = {}
        self._finished: dict[str, float] = {}  #: when, on the cluster's clock

    async def run(self) -> None:
        """Serve until cancelled. A connection that is lost is opened again, and unfinished jobs go on."""
        forget = self._cluster.clock.on_move(self._clock_moved)
        try:
            while True:
                try:
                    connection = await SuperuserConnection.open(self._cluster.socket_path, **_SETTINGS)
                except (OSError, BackendRefused) as error:
                    _LOG.warning("the jobs of cluster %s wait: %s", self._cluster.id, error)
                else:
                    try:
                        await self._serve(connection)
                    except (ConnectionError, QueryFailed) as error:
                        _LOG.warning("the jobs of cluster %s were interrupted: %s", self._cluster.id, error)
                    finally:
                        connection.close()
                await asyncio.sleep(_RETRY_S)
        finally:
            forget()

    def _clock_moved(self) -> None:
        self._woken.set()
        back_s = self._moved_s - self._cluster.clock.moved_s
        self._moved_s = self._cluster.clock.moved_s
        if back_s <= 0:
            return
        # The clock was reset: what has happened is not to lie in the future.
        for job in self._jobs.values():
            job.submitted_at -= back_s
            job.next_try -= back_s
        self._finished = {job_id: at - back_s for job_id, at in self._finished.items()}

    async def _serve(self, connection: SuperuserConnection) -> None:
        await connection.query("LISTEN pytest_dsql_engine_jobs")
        await self._resume(connection)
        connection.notified.set()  # jobs that are there already
        while True:
            if connection.notified.is_set():
                connection.notified.clear()
                await self._learn(connection)
            await self._advance(connection)
            await self._forget(connection)
            await self._wait(connection)

    async def _resume(self, connection: SuperuserConnection) -> None:
        """Announce what has ended before this connection."""
        self._finished.clear()
        for job_id, finished_at in await connection.query("SELECT * FROM pytest_dsql_engine.finished_jobs()"):
            await connection.query(f"CALL pytest_dsql_engine.announce_job('{job_id}')")
            self._finished[job_id] = self._cluster.clock.at(float(finished_at))

    async def _learn(self, connection: SuperuserConnection) -> None:
        """Learn of new jobs, and of those whose object was dropped."""
        found: dict[str, _Job] = {}
        rows = await connection.query("SELECT * FROM pytest_dsql_engine.unfinished_jobs()")
        for job_id, kind, status, submitted_at, present in rows:
            job = self._jobs.get(job_id)
            if job is None:
                job = _Job(kind, self._cluster.clock.at(float(submitted_at)), status == "processing")
            job.present = present == "t"
            found[job_id] = job
        self._jobs = found

    async def _advance(self, connection: SuperuserConnection) -> None:
        """Take up and finish what is due."""
        build_s = self._cluster.limits.job_build_s
        for job_id, job in list(self._jobs.items()):
            age_s = self._cluster.clock.now() - job.submitted_at
            if age_s >= build_s or not job.present:
                await self._finish(connection, job_id, job)
            elif age_s >= build_s * _SUBMITTED and not job.started:
                await connection.query(f"CALL pytest_dsql_engine.start_job('{job_id}')")
                job.started = True

    async def _finish(self, connection: SuperuserConnection, job_id: str, job: _Job) -> None:
        now = self._cluster.clock.now()
        if now < job.next_try:
            return
        try:
            await connection.query(f"SELECT pytest_dsql_engine.finish_job('{job_id}')")
        except QueryFailed as error:
            job.next_try = now + _RETRY_S
            job.faults += error.sqlstate not in _BUSY
            if job.faults < _TRIES:
                return
            _LOG.warning("job %s fails: %s", job_id, error)
            await connection.query(f"CALL pytest_dsql_engine.fail_job('{job_id}', {literal(error.message)})")
        del self._jobs[job_id]
        self._finished[job_id] = now
        # Before those who wait for the job are told: what they do next is to meet the new catalog. Where there was
        # nothing left to do, nothing has changed.
        if job.present and job.kind in _CATALOG_JOBS:
            self._cluster.catalog_changed()
        await connection.query(f"CALL pytest_dsql_engine.announce_job('{job_id}')")

    async def _forget(self, connection: SuperuserConnection) -> None:
        now = self._cluster.clock.now()
        for job_id, finished_at in list(self._finished.items()):
            if now - finished_at >= _SHOWN_S:
                await connection.query(f"CALL pytest_dsql_engine.forget_job('{job_id}')")
                del self._finished[job_id]

    async def _wait(self, connection: SuperuserConnection) -> None:
        """Return when there may be something to do."""
        now = self._cluster.clock.now()
        build_s = self._cluster.limits.job_build_s
        moments = [at + _SHOWN_S for at in self._finished.values()]
        for job in self._jobs.values():
            due = job.submitted_at + (build_s if job.started else build_s * _SUBMITTED)
            moments.append(min(max(due, job.next_try), now + _LOOK_S))
        timeout_s = max(min(moments) - now, 0.0) if moments else None
        waits = [asyncio.create_task(event.wait()) for event in (connection.notified, self._woken)]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._woken.clear()


@final
class Jobs:
    """The job runners of an engine's clusters. For the gateway's event loop only."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, cluster: Cluster) -> None:
        """Run the jobs of a cluster whose PostgreSQL answers."""
        runner = JobRunner(cluster)
        self._tasks[cluster.id] = asyncio.create_task(runner.run(), name=f"jobs {cluster.id}")

    async def stop(self, cluster_id: str) -> None:
        """Leave a cluster alone; what is unfinished stays so."""
        task = self._tasks.pop(cluster_id, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def close(self) -> None:
        """Stop all runners."""
        for cluster_id in list(self._tasks):
            await self.stop(cluster_id)
