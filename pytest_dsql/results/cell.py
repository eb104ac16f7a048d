"""A cell, or a burst of connections, as the results file holds it: plain data in milliseconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from pytest_dsql.load.cell import Cell
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.cost import Cost
from pytest_dsql.load.digest import Digest
from pytest_dsql.load.measurement import ConnectStats, EngineWork, Outcome, Samples
from pytest_dsql.load.sampled import attempts_of, latencies_of
from pytest_dsql.load.series import Series
from pytest_dsql.load.statistics import LatencySummary, distribution
from pytest_dsql.results import histogram
from pytest_dsql.results.schema import PERCENTILES
from pytest_dsql.slo.objectives import ALLOWED_OVER
from pytest_dsql.slo.verdict import ObjectiveResult, Verdict


def cell_dict(cell: Cell | Connections) -> dict[str, Any]:
    """Return everything that docs/results.md lists for a cell."""
    return _measured(cell) if isinstance(cell, Cell) else _connected(cell)


def _measured(cell: Cell) -> dict[str, Any]:
    measured, health, verdict = cell.measurement, cell.generator, cell.standing
    return {
        "id": cell.id,
        "test": cell.test,
        "target": cell.target,
        "repeat": cell.repeat,
        "arrival": {
            "kind": measured.arrival.kind,
            "rate": measured.arrival.rate,
            "tasks": measured.arrival.tasks,
        },
        "access": measured.access,
        "max_attempts": measured.max_attempts,
        "pipeline": measured.pipeline,
        "connections": measured.connections,
        "workers": measured.workers,
        "warmup_s": measured.warmup_s,
        "duration_s": measured.duration_s,
        "windows": measured.look,
        "interrupted": measured.interrupted,
        "counted": cell.is_counted,
        "transactions": {name: _transaction(cell, samples) for name, samples in measured.requests.items()},
        "tps": _tps(cell),
        "series": _series(cell.series),
        "conflict_rate": cell.conflict_rate,
        "objectives": [_objective(cell, one) for one in verdict.objectives] if verdict else [],
        "generator": {
            "cpu": _rounded(health.cpu),
            "runqueue_wait": _rounded(health.runqueue_wait),
            "loop_lag_p50_ms": health.loop_lag_p50_ns / 1e6,
            "loop_lag_p99_ms": health.loop_lag_p99_ns / 1e6,
            "loop_lag_max_ms": health.loop_lag_max_ns / 1e6,
            "schedule_lag_p99_ms": None if health.schedule_lag_p99_ns is None else health.schedule_lag_p99_ns / 1e6,
            "connection_wait_p99_ms": health.connection_wait_p99_ns / 1e6,
            "connection_wait_share": _rounded(health.connection_wait_share),
            "gc_pause_max_ms": health.gc_pause_max_ns / 1e6,
            "clock_resolution_ms": health.clock_resolution_ns / 1e6,
            "clock_uncertainty_ms": None
            if measured.clock_uncertainty_ns is None
            else measured.clock_uncertainty_ns / 1e6,
            "healthy": verdict.healthy if verdict else None,
        },
        "engine": _engine(measured.engine),
        "rtt_ms": cell.rtt_ms,
        "connect": _connect(cell.connect),
        **_decision(verdict),
        "invariants": cell.invariants,
        "cost": cost_dict(cell.cost),
        "simulated": cell.simulated,
    }


def _connected(connections: Connections) -> dict[str, Any]:
    verdict = connections.standing
    nothing = dict.fromkeys(
        (
            "loop_lag_p50_ms",
            "loop_lag_p99_ms",
            "loop_lag_max_ms",
            "schedule_lag_p99_ms",
            "connection_wait_p99_ms",
            "connection_wait_share",
            "gc_pause_max_ms",
            "clock_resolution_ms",
            "clock_uncertainty_ms",
        )
    )
    return {
        "id": connections.id,
        "test": connections.test,
        "target": connections.target,
        "repeat": connections.repeat,
        "arrival": {"kind": connections.kind, "rate": connections.asked_per_s, "tasks": None},
        "access": "uniform",
        "max_attempts": 1,
        "pipeline": False,
        "connections": connections.requested,
        "workers": connections.workers,
        "warmup_s": 0.0,
        "duration_s": connections.elapsed_s,
        "windows": 1,
        "interrupted": None,
        "counted": False,
        "transactions": {},
        "tps": {"success": 0.0, "success_low": None, "success_high": None, "attempt": 0.0},
        "series": None,
        "conflict_rate": 0.0,
        "objectives": [],
        "generator": {
            "cpu": _rounded(connections.client_cpu_share),
            "runqueue_wait": None,
            **nothing,
            "healthy": verdict.healthy if verdict else None,
        },
        "engine": None,
        "rtt_ms": None,
        "connect": _connect(connections.stats),
        **_decision(verdict),
        "limited_by": None if connections.kind == "sequential" else connections.limit.limited_by,
        "invariants": None,
        "cost": cost_dict(connections.cost),
        "simulated": connections.simulated,
    }


def cost_dict(cost: Cost | None) -> dict[str, Any] | None:
    """Return the `cost` section of a cell; None when nobody knows."""
    if cost is None:
        return None
    parts = cost.parts
    return {
        "dpu": _rounded(cost.dpu),
        "compute_dpu": _rounded(parts.compute) if parts else None,
        "read_dpu": _rounded(parts.read) if parts else None,
        "write_dpu": _rounded(parts.write) if parts else None,
        "multi_region_write_dpu": _rounded(parts.multi_region_write) if parts else None,
        "usd": None if cost.usd is None else round(cost.usd, 9),
        "estimated": cost.estimated,
        "source": cost.source,
        "began_at": _utc(cost.began_s),
        "ended_at": _utc(cost.ended_s),
    }


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _decision(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        reason = "Nobody has asked for a verdict on it."
        return {"limited_by": None, "verdict": {"outcome": "unjudged", "reasons": [reason]}}
    return {
        "limited_by": "generator" if not verdict.healthy else "machine" if verdict.engine_signs else None,
        "verdict": {"outcome": verdict.outcome, "reasons": list(verdict.reasons)},
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "step_s": series.step_s,
        "success": series.success,
        "attempts": series.attempts,
        "failures": series.failures,
        **{
            f"{name}_ms": [None if one is None else round(one / 1e6, 6) for one in column]
            for name, column in (("p50", series.p50_ns), ("p99", series.p99_ns), ("max", series.max_ns))
        },
    }


def _transaction(cell: Cell, samples: Samples | Digest) -> dict[str, Any]:
    name = samples.name
    return {
        "kind": samples.kind,
        "count": len(samples),
        "outcomes": {one.name.lower(): samples.count(one) for one in Outcome},
        "attempts": attempts_of(samples),
        "errors": dict(samples.errors),
        "messages": dict(samples.messages),
        "latency_ms": _summary(cell.latency[name]),
        "interval_ms": _intervals(cell, name),
        "wait_ms": _summary(cell.wait[name]),
        "service_ms": _summary(cell.service[name]),
        "backoff_ms": _summary(cell.backoff[name]),
        "histogram": histogram.encode(latencies_of(samples)),
    }


def _tps(cell: Cell) -> dict[str, float | None]:
    low, high = cell.tps_interval
    return {
        "success": _rounded(cell.tps),
        "success_low": _rounded(low),
        "success_high": _rounded(high),
        "attempt": _rounded(cell.attempt_tps),
    }


def _intervals(cell: Cell, name: str) -> dict[str, float | None]:
    ends: dict[str, float | None] = {}
    for percentile in ALLOWED_OVER:
        low, high = cell.interval(name, percentile)
        ends |= {f"{percentile}_low": _rounded(low), f"{percentile}_high": _rounded(high)}
    return ends


def _objective(cell: Cell, one: ObjectiveResult) -> dict[str, Any]:
    is_latency = one.metric not in ("failure_rate", "tps")
    summary = cell.latency.get(one.transaction or "") if is_latency else None
    measured = one.measured if summary is None else getattr(summary, f"{one.metric}_ms")
    return {
        "metric": one.metric,
        "transaction": one.transaction,
        "limit": one.limit / 1e6 if is_latency else one.limit,
        "measured": _rounded(measured),
        "n": one.n,
        "over": one.over,
        "unfinished": one.unfinished,
        "design_effect": _rounded(one.design_effect),
        "level": one.level,
        "look": one.look,
        "outcome": one.outcome,
    }


def _engine(work: EngineWork | None) -> dict[str, float] | None:
    if work is None or not work.elapsed_ns:
        return None
    return {
        "cpu": round(work.cpu_ns / work.elapsed_ns, 6),
        "runqueue_wait": round(work.waited_ns / work.elapsed_ns, 6),
        "others_cpu": round(work.others_ns / work.elapsed_ns, 6),
        "starved": round(work.starved, 6),
        "gateway_starved": round(work.gateway_starved, 6),
    }


def _connect(stats: ConnectStats) -> dict[str, Any]:
    # With a new connection for each request, connecting has no time of its own.
    timed = stats.elapsed_ns > 0
    return {
        "attempted": stats.attempted,
        "succeeded": stats.succeeded,
        "refused": dict(stats.refused),
        "messages": dict(stats.messages),
        "phases_ms": {name: _summary(LatencySummary.of(distribution(one))) for name, one in stats.phases_ns.items()},
        "elapsed_ms": stats.elapsed_ns / 1e6 if timed else None,
        "rate_per_s": _rounded(stats.succeeded / stats.elapsed_ns * 1e9) if timed else None,
        "client_cpu_ms": stats.client_cpu_ns / 1e6 if timed else None,
        "tokens_signed": stats.tokens_signed,
        "memory_bytes_per_connection": None
        if stats.memory_bytes is None or not stats.succeeded
        else round(stats.memory_bytes / stats.succeeded),
    }


def _summary(summary: LatencySummary) -> dict[str, float | None]:
    return {name: _rounded(getattr(summary, f"{name}_ms")) for name in (*PERCENTILES, "mean")}


def _rounded(value: float | None) -> float | None:
    """Six decimals: a nanosecond of a millisecond. JSON has no NaN: what was not measured is null."""
    return None if value is None or not math.isfinite(value) else round(value, 6)
