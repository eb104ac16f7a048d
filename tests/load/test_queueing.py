"""How long requests queue for a connection, simulated with the schedules that workers get: no clock, no sockets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import pytest

from pytest_dsql.load.arrivals import schedule_of
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.statistics import percentile

MS = 1_000_000
SERVICE_NS = 28 * MS  #: what the database took in the published run (Aurora DSQL, Seoul, 2026-09)
CONNECTIONS = 256
UTILISATION = 0.8
RATE = UTILISATION * CONNECTIONS / (SERVICE_NS / 1e9)


def waits(after_ns: Sequence[int], connections: int) -> list[int]:
    """Return how long each request waits when `connections` serve one queue, in order of arrival."""
    free_at = [0] * connections
    found = []
    for at in after_ns:
        begins = max(at, free_at[0])
        heapq.heapreplace(free_at, begins + SERVICE_NS)
        found.append(begins - at)
    return found


def wait_p99(arrival: Arrival, workers: int) -> int:
    each = CONNECTIONS // workers
    together: list[int] = []
    for worker in range(workers):
        schedule = schedule_of(arrival, [1.0], seed=3, length_s=20.0, worker=worker, workers=workers)
        together += waits(schedule.after_ns, each)
    return percentile(sorted(together), 990)


@pytest.mark.parametrize("kind", ["poisson", "constant"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_few_workers_with_many_connections_hardly_queue(kind: str, workers: int) -> None:
    assert wait_p99(Arrival(kind, RATE), workers) < 5 * MS  # type: ignore[arg-type]


def test_requests_would_queue_with_connections_of_their_own() -> None:
    """What one queue for all connections is for: dealt out by chance to single connections, the same requests wait."""
    schedule = schedule_of(Arrival("poisson", RATE), [1.0], seed=3, length_s=20.0, worker=0, workers=1)
    chance = random.Random(4)
    shares: list[list[int]] = [[] for _ in range(CONNECTIONS)]
    for after_ns in schedule.after_ns:
        chance.choice(shares).append(after_ns)
    found = [wait for share in shares for wait in waits(share, 1)]
    assert percentile(sorted(found), 990) > SERVICE_NS / 4
