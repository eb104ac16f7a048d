"""Measurements and cells made up for tests: every request at a known time, with a known end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_dsql.load.cell import Cell, Extend
from pytest_dsql.load.measurement import (
    Arrival,
    ConnectStats,
    Distribution,
    GeneratorHealth,
    Kind,
    Measurement,
    Outcome,
    Samples,
)

MS = 1_000_000
KINDS: Mapping[str, Kind] = {"product_read": "read", "order_create": "write"}
HEALTHY = GeneratorHealth(
    cpu=0.3,
    runqueue_wait=0.02,
    loop_lag_p50_ns=MS // 10,
    loop_lag_p99_ns=MS // 5,
    loop_lag_max_ns=2 * MS,
    schedule_lag_p99_ns=None,
    connection_wait_p99_ns=0,
)


def samples(
    name: str,
    n: int,
    *,
    duration_s: float = 8.0,
    latencies_ms: Sequence[float] = (5.0,),
    outcomes: Sequence[Outcome] = (Outcome.OK,),
    slow: Mapping[int, float] | None = None,
    errors: Mapping[str, int] | None = None,
) -> Samples:
    """Return `n` requests spread over the window; latencies and outcomes repeat; `slow`: position -> milliseconds."""
    made = Samples(
        name,
        KINDS.get(name, "read"),
        errors=dict(errors or {}),
        messages={state: f"the message of {state}" for state in errors or ()},
    )
    for index in range(n):
        latency = round((slow or {}).get(index, latencies_ms[index % len(latencies_ms)]) * MS)
        outcome = outcomes[index % len(outcomes)]
        made.intended_ns.append(round(duration_s * 1e9 * index / n))
        made.latency_ns.append(latency)
        made.wait_ns.append(latency // 10)
        made.service_ns.append(latency - latency // 10 - latency // 5)
        made.backoff_ns.append(latency // 5)
        made.outcome.append(int(outcome))
        made.attempts.append(2 if outcome is Outcome.OK_RETRIED else 1)
    return made


def measurement(*several: Samples, **changes: Any) -> Measurement:
    """Return a healthy closed-loop measurement of 8 s."""
    committed = {one.name: one.count(Outcome.OK, Outcome.OK_RETRIED) for one in several}
    facts: dict[str, Any] = {
        "arrival": Arrival("closed"),
        "connections": 4,
        "workers": 1,
        "warmup_s": 1.0,
        "duration_s": 8.0,
        "samples": {one.name: one for one in several},
        "generator": HEALTHY,
        "connect": ConnectStats(attempted=4, succeeded=4, tokens_signed=1),
        "rtt_ns": Distribution(20, MS // 5, MS // 4, MS // 4, MS // 4, MS // 4, MS / 5),
        "committed": committed,
        "ambiguous": dict.fromkeys(committed, 0),
    }
    return Measurement(**(facts | changes))


def good_measurement(n: int = 6000) -> Measurement:
    """Return one that meets any sensible objective when n is large enough."""
    return measurement(samples("product_read", n), samples("order_create", n))


def cell(measured: Measurement | None = None, *, extend: Extend | None = None, **changes: Any) -> Cell:
    """Return a cell of a test that exists only here."""
    facts: dict[str, Any] = {
        "id": "tests/test_shop.py::test_orders[4]",
        "test": "tests/test_shop.py::test_orders[4]",
        "target": "local",
        "invariants": {"stock": 0, "receipts": 0},
        "extend": extend,
    }
    return Cell(measured or good_measurement(), **(facts | changes))


def connect_stats(made: int = 497, refused: Mapping[str, int] | None = None) -> ConnectStats:
    """Return the statistics of a burst: 1 ms of CPU and 4 ms in total for each connection."""
    refusals = dict(refused or {})
    attempted = made + sum(refusals.values())
    return ConnectStats(
        attempted=attempted,
        succeeded=made,
        refused=refusals,
        phases_ns={"tls": array("q", [2 * MS] * made), "total": array("q", [4 * MS] * made)},
        client_cpu_ns=attempted * MS,
        elapsed_ns=4_000_000_000,
        tokens_signed=1,
        messages=dict.fromkeys(refusals, "unable to accept connection"),
    )
