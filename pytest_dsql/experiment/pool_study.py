"""Tasks of an application that share a pool: what they get done, and how long they wait for a connection."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.load.statistics import distribution
from pytest_dsql.transaction import stream_seed

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource

#: How long filling the pool may take: DSQL lets 100 new connections through a second, after a burst of 1,000.
_FILLING_S: Final = 120.0


@final
@dataclass(frozen=True, slots=True)
class PoolUse:
    """What some tasks got done over one pool. Times in milliseconds."""

    tasks: int
    connections: int  #: of the pool
    requests: int
    per_s: float
    wait_p50_ms: float  #: until the pool gave a connection
    wait_p99_ms: float
    total_p50_ms: float  #: wait and statement
    total_p99_ms: float
    client_cpu: float  #: share of a core that the application's process used: near 1 it was the limit itself

    def figures(self) -> dict[str, float | int]:
        """Return it for the results file."""
        return {name: round(getattr(self, name), 6) for name in self.__dataclass_fields__}


def use_pool(
    endpoint: Endpoint,
    tokens: TokenSource,
    *,
    tasks: int,
    connections: int,
    duration_s: float,
    statement: bytes,
    parameters: Callable[[random.Random], Sequence[Any]],
    seed: int,
) -> PoolUse:
    """Have asyncio tasks run a statement again and again, each time over a connection of one psycopg_pool.

    It is what an application with an asynchronous framework does, with what that costs on the client, and not the load
    generator. The pool is full before the first statement. Raises psycopg_pool.PoolTimeout when it can't be filled.
    """
    return asyncio.run(_use(endpoint, tokens, tasks, connections, duration_s, statement, parameters, seed))


async def _use(
    endpoint: Endpoint,
    tokens: TokenSource,
    tasks: int,
    connections: int,
    duration_s: float,
    statement: bytes,
    parameters: Callable[[random.Random], Sequence[Any]],
    seed: int,
) -> PoolUse:
    from pytest_dsql.connect.pool import unopened_async_pool

    waits, totals = array("q"), array("q")
    pool = unopened_async_pool(endpoint, tokens, min_size=connections, max_size=connections)
    async with pool:
        await pool.wait(_FILLING_S)
        end_ns = time.perf_counter_ns() + int(duration_s * 1e9)

        async def work(number: int) -> None:
            rng = random.Random(stream_seed(seed, "a task of the application", number))
            while (asked_ns := time.perf_counter_ns()) < end_ns:
                async with pool.connection() as connection:
                    given_ns = time.perf_counter_ns()
                    await connection.execute(statement, parameters(rng))
                waits.append(given_ns - asked_ns)
                totals.append(time.perf_counter_ns() - asked_ns)

        began_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(work(number))
        spent_ns, cpu_ns = time.perf_counter_ns() - began_ns, time.process_time_ns() - cpu_ns
    wait, total = distribution(waits), distribution(totals)
    assert wait is not None, "every task makes a request"
    assert total is not None
    return PoolUse(
        tasks=tasks,
        connections=connections,
        requests=len(totals),
        per_s=len(totals) / spent_ns * 1e9,
        wait_p50_ms=wait.p50 / 1e6,
        wait_p99_ms=wait.p99 / 1e6,
        total_p50_ms=total.p50 / 1e6,
        total_p99_ms=total.p99 / 1e6,
        client_cpu=cpu_ns / spent_ns,
    )
