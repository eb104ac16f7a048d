"""Connections by themselves: many requested at once and held, or one after the other."""

from __future__ import annotations

import random
from time import perf_counter_ns, process_time_ns, sleep
from typing import TYPE_CHECKING, Any, Final

import psycopg

from pytest_dsql.connect.backoff import BACKOFF
from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, DsqlError, ErrorClass, LoadFailed
from pytest_dsql.load.connecting import ConnectLog, unanswered
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.measurement import ConnectStats
from pytest_dsql.load.merging import merge_connects
from pytest_dsql.load.plan import BurstShare
from pytest_dsql.load.processes import Fleet, Worker
from pytest_dsql.transaction import stream_seed

if TYPE_CHECKING:
    from distributed import Client

    from pytest_dsql.connect.endpoint import Endpoint

_LEAD_NS: Final = 30_000_000
_FAR_LEAD_NS: Final = 1_500_000_000


def connect_burst(
    endpoint: Endpoint,
    n: int,
    *,
    workers: int = 1,
    timeout_s: float = 60,
    rate: float | None = None,
    scheduler: Client | None = None,
) -> ConnectStats:
    """Request `n` connections at once, split over worker processes; hold each until all are decided.

    With a `rate`, per second and over all processes, one after the other instead, and each is closed when it has
    answered; one that would be the 2,001st under way in its process is not attempted.

    With a Dask `scheduler` the processes run on the hosts of its workers. Every connection answers `SELECT 1` before
    it counts as made. Refusals are counted by SQLSTATE and are no error. Raises CredentialsError, UsageError (more
    connections than open files allow) or LoadFailed (a worker died).
    """
    if n < 1 or workers < 1:
        raise ValueError(f"a burst needs at least one connection and one worker, not {n} and {workers}")
    workers = min(workers, n)
    each, rest = divmod(n, workers)
    endpoint = endpoint.resolved()
    loop = Loop()
    ready: list[Worker] = []
    decided: list[tuple[ConnectStats, int]] = []

    def received(worker: Worker, message: tuple[Any, ...]) -> None:
        match message:
            case ("ready", _):
                ready.append(worker)
                loop.stop()
            case ("decided", stats, decided_ns):
                decided.append((stats, decided_ns))
                loop.stop()
            case ("failed", error):
                failures.append(error)
                loop.stop()

    def died(_worker: Worker, epitaph: str) -> None:
        failures.append(LoadFailed(f"{epitaph} (in a burst of {n} connections)"))
        loop.stop()

    failures: list[DsqlError] = []
    fleet = Fleet(loop, received=received, died=died, scheduler=scheduler)

    def wait(for_all: list[Any]) -> None:
        while len(for_all) < workers:
            loop.run()
            if failures:
                raise failures[0]

    try:
        every_ns = None if rate is None else round(workers * 1e9 / rate)
        fleet.start(
            [
                BurstShare(
                    endpoint,
                    each + (index < rest),
                    timeout_s,
                    every_ns=every_ns,
                    first_ns=0 if every_ns is None else every_ns * index // workers,
                )
                for index in range(workers)
            ]
        )
        wait(ready)
        start_ns = perf_counter_ns() + (_LEAD_NS if scheduler is None else _FAR_LEAD_NS)
        fleet.tell("start", start_ns)
        wait(decided)
    finally:
        fleet.close()
        loop.close()
    total = ConnectStats()
    for stats, _ in decided:
        total = merge_connects(total, stats)
    total.elapsed_ns = max(decided_ns for _, decided_ns in decided) - start_ns
    return total


def sequential_connects(endpoint: Endpoint, n: int, *, seed: int = 1) -> ConnectStats:
    """Connect, `SELECT 1`, close: `n` times, one after the other, in this process.

    Refusals are counted by SQLSTATE and are no error. After one by a limit comes a pause, or only the limit would be
    measured; `seed` is that of its jitter. Raises CredentialsError.
    """
    if n < 1:
        raise ValueError(f"at least one connection, not {n}")
    endpoint = endpoint.resolved()
    tokens = TokenSource(endpoint)
    log = ConnectLog()
    began_ns, cpu_ns = perf_counter_ns(), process_time_ns()
    jitter = random.Random(stream_seed(seed, "sequential connections", n))
    refusals = 0  #: in a row
    for _ in range(n):
        try:
            connection, phases = dial(endpoint, tokens, patient=False)
            with connection:
                connection.execute("SELECT 1")
        except ConnectionFailed as error:
            log.refused(error)
            if error.error_class is ErrorClass.LIMIT:
                refusals += 1
                sleep(BACKOFF.pause_s(refusals, jitter.random()))
        except psycopg.Error as error:
            log.refused(unanswered(error))
        else:
            log.made(phases)
            refusals = 0
    stats = log.stats
    stats.elapsed_ns = perf_counter_ns() - began_ns
    stats.client_cpu_ns = process_time_ns() - cpu_ns
    stats.tokens_signed = tokens.signed
    return stats
