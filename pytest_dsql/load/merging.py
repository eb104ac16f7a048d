"""Two measurements of one cell as one: the second takes place right after the first."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeVar

from pytest_dsql.load.digest import CountedCell, Digest, slices_of
from pytest_dsql.load.measurement import ConnectStats, GeneratorHealth, Measurement, Samples
from pytest_dsql.slo.throughput import SLICES

Number = TypeVar("Number", int, float)

_COLUMNS: Final = ("latency_ns", "wait_ns", "service_ns", "backoff_ns", "outcome", "attempts")


def merge_measurements(first: Measurement, second: Measurement) -> Measurement:
    """Return what both measured, neither changed. The second's intended starts follow the first's window.

    The generator is as healthy as in the worse of the two. Raises ValueError when they measured different things.
    """
    described = [(one.arrival, one.connections, set(one.requests)) for one in (first, second)]
    if described[0] != described[1]:
        raise ValueError(f"only measurements of the same cell can be merged, not {described[0]} and {described[1]}")
    if (first.counted is None) != (second.counted is None):
        raise ValueError("requests that were kept can't be merged with requests that were only counted")
    shift_ns = round(first.duration_s * 1e9)
    return Measurement(
        arrival=first.arrival,
        access=first.access,
        max_attempts=first.max_attempts,
        pipeline=first.pipeline,
        clock_uncertainty_ns=_larger(first.clock_uncertainty_ns, second.clock_uncertainty_ns),
        connections=first.connections,
        workers=max(first.workers, second.workers),
        warmup_s=first.warmup_s + second.warmup_s,
        duration_s=first.duration_s + second.duration_s,
        samples={name: _merge_samples(one, second.samples[name], shift_ns) for name, one in first.samples.items()},
        generator=_worse(first.generator, second.generator),
        connect=merge_connects(first.connect, second.connect),
        rtt_ns=first.rtt_ns or second.rtt_ns,
        committed=_sum(first.committed, second.committed),
        ambiguous=_sum(first.ambiguous, second.ambiguous),
        look=first.look + second.look,
        spill=first.spill + second.spill,
        interrupted=first.interrupted or second.interrupted,
        simulated=first.simulated or second.simulated,
        cost=None if first.cost is None or second.cost is None else first.cost.plus(second.cost),
        engine=None if first.engine is None or second.engine is None else first.engine.plus(second.engine),
        counted=None
        if first.counted is None or second.counted is None
        else _merge_counted((first.counted, first.duration_s), (second.counted, second.duration_s)),
    )


def _merge_counted(first: tuple[CountedCell, float], second: tuple[CountedCell, float]) -> CountedCell:
    """Return what was counted in two windows of so many seconds, the second right behind the first."""
    (one, one_s), (other, other_s) = first, second
    after = max((digest.stretches for digest in one.digests.values()), default=0)
    merged = {}
    for name, digest in one.digests.items():
        merged[name] = whole = Digest(digest.name, digest.kind)
        whole.include(digest)
        whole.include(other.digests[name], after)
    parts = [(length_s / SLICES, window.successes) for window, length_s in (first, second) if length_s > 0]
    return CountedCell(merged, one.series.followed_by(other.series), slices_of(parts, one_s + other_s))


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = Counter(dict(first))
    total.update(second)
    return dict(total)


def _merge_samples(first: Samples, second: Samples, shift_ns: int) -> Samples:
    # A start right at the window's end must not come before the next window's first.
    shift_ns = max(shift_ns, first.intended_ns[-1] if len(first) else 0)
    merged = Samples(first.name, first.kind, errors=_sum(first.errors, second.errors))
    merged.messages.update(second.messages | first.messages)
    merged.intended_ns.extend(first.intended_ns)
    merged.intended_ns.extend(array("q", (start + shift_ns for start in second.intended_ns)))
    for name in _COLUMNS:
        column = getattr(merged, name)
        column.extend(getattr(first, name))
        column.extend(getattr(second, name))
    return merged


def _larger(first: Number | None, second: Number | None) -> Number | None:
    known = [one for one in (first, second) if one is not None]
    return max(known) if known else None


def _total(first: int | None, second: int | None) -> int | None:
    known = [one for one in (first, second) if one is not None]
    return sum(known) if known else None


def _worse(first: GeneratorHealth, second: GeneratorHealth) -> GeneratorHealth:
    schedule_lag = _larger(first.schedule_lag_p99_ns, second.schedule_lag_p99_ns)
    return GeneratorHealth(
        cpu=max(first.cpu, second.cpu),
        runqueue_wait=_larger(first.runqueue_wait, second.runqueue_wait),
        loop_lag_p50_ns=max(first.loop_lag_p50_ns, second.loop_lag_p50_ns),
        loop_lag_p99_ns=max(first.loop_lag_p99_ns, second.loop_lag_p99_ns),
        loop_lag_max_ns=max(first.loop_lag_max_ns, second.loop_lag_max_ns),
        schedule_lag_p99_ns=schedule_lag,
        connection_wait_p99_ns=max(first.connection_wait_p99_ns, second.connection_wait_p99_ns),
        gc_pause_max_ns=max(first.gc_pause_max_ns, second.gc_pause_max_ns),
        connection_wait_share=max(first.connection_wait_share, second.connection_wait_share),
        clock_resolution_ns=max(first.clock_resolution_ns, second.clock_resolution_ns),
        own_lag_p999_ns=max(first.own_lag_p999_ns, second.own_lag_p999_ns),
        connection_wait_p999_ns=max(first.connection_wait_p999_ns, second.connection_wait_p999_ns),
    )


def merge_connects(first: ConnectStats, second: ConnectStats) -> ConnectStats:
    """Return what both counted; times add up."""
    phases = {name: array("q", values) for name, values in first.phases_ns.items()}
    for name, values in second.phases_ns.items():
        phases.setdefault(name, array("q")).extend(values)
    return ConnectStats(
        attempted=first.attempted + second.attempted,
        succeeded=first.succeeded + second.succeeded,
        refused=_sum(first.refused, second.refused),
        phases_ns=phases,
        client_cpu_ns=first.client_cpu_ns + second.client_cpu_ns,
        client_waited_ns=first.client_waited_ns + second.client_waited_ns,
        elapsed_ns=first.elapsed_ns + second.elapsed_ns,
        tokens_signed=first.tokens_signed + second.tokens_signed,
        memory_bytes=_total(first.memory_bytes, second.memory_bytes),
        messages=second.messages | first.messages,
    )
