"""Evidence for the tests of verdicts: a healthy cell of two transactions, changed where a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_dsql.slo.evidence import OUTCOME_COUNTS, Evidence, Generator, Requests
from pytest_dsql.slo.objectives import Kind, Latency, Slo, ms

HEALTHY = Generator(
    cpu=0.3, runqueue_wait=0.02, loop_lag_p99_ns=ms(0.3), schedule_lag_p99_ns=None, connection_wait_p99_ns=0
)

P99 = Slo(reads=Latency(p99=ms(100)))
FAILURES = Slo(max_failure_rate=0.001)


def read(n: int, **changes: Any) -> Requests:
    """Return `n` requests of a transaction that reads; see `requests`."""
    return requests("product_read", "read", n, **changes)


def requests(
    name: str,
    kind: Kind,
    n: int,
    *,
    slow: Sequence[int] = (),
    latency: int = ms(5),
    slow_latency: int = ms(1000),
    outcomes: dict[int, str] | None = None,
    every: str = "ok",
) -> Requests:
    """Return `n` requests, one per millisecond; those at the positions `slow` took longer, `outcomes` ended so."""
    latencies = [latency] * n
    for position in slow:
        latencies[position] = slow_latency
    ends = [every] * n
    for position, outcome in (outcomes or {}).items():
        ends[position] = outcome
    return Requests(
        name=name,
        kind=kind,
        start_ns=[position * 1_000_000 for position in range(n)],
        latency_ns=latencies,
        counts=bytes(OUTCOME_COUNTS[one] for one in ends),
        committed=sum(one in ("ok", "ok_retried") for one in ends),
    )


def spread(k: int, n: int) -> range:
    """Return `k` positions spread evenly over `n`: no cluster."""
    return range(0, n - n % k, n // k) if k else range(0)


def evidence(*several: Requests, **changes: Any) -> Evidence:
    """Return the evidence of a healthy cell."""
    facts: dict[str, Any] = {
        "requests": several,
        "duration_s": 10.0,
        "successes": [sum(one.committed for one in several) // 20] * 20,
        "generator": HEALTHY,
        "invariants": {"stock": 0},
    }
    return Evidence(**(facts | changes))
