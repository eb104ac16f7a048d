"""How near a worker process is to its own limits: CPU, waiting for a core, loop lag, garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.load.measurement import GeneratorHealth

if TYPE_CHECKING:
    from pytest_dsql.load.loop import Loop

#: Of the clock, one after the other: some 0.2 ms altogether.
_READINGS: Final = 2_000


@final
@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """The health of one worker over its window."""

    cpu: float
    runqueue_wait: float | None
    loop_lag_p50_ns: int
    loop_lag_p99_ns: int
    loop_lag_max_ns: int
    gc_pause_max_ns: int
    schedule_lag_p99_ns: int | None = None  #: None in closed loop, which has no schedule
    connection_wait_p99_ns: int = 0
    connection_wait_share: float = 0.0
    clock_resolution_ns: int = 0
    own_lag_p999_ns: int = 0  #: the longer of loop lag and schedule lag
    connection_wait_p999_ns: int = 0


@final
class HealthMonitor:
    """Measures a worker between `open` and `close`: the window."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._wall_ns = 0
        self._cpu_ns = 0
        self._waited_ns: int | None = None
        self._gc_began_ns = 0
        self._gc_pause_max_ns = 0
        self._result: WorkerHealth | None = None

    def open(self) -> None:
        """Begin measuring."""
        self._loop.reset_lags()
        gc.callbacks.append(self._on_collection)
        self._gc_pause_max_ns = 0
        self._wall_ns = perf_counter_ns()
        self._cpu_ns = process_time_ns()
        self._waited_ns = runqueue_wait_ns()

    def close(self) -> None:
        """End measuring; a second call changes nothing."""
        if self._result is not None or not self._wall_ns:
            return
        wall_ns = max(1, perf_counter_ns() - self._wall_ns)
        waited_ns = runqueue_wait_ns()
        gc.callbacks.remove(self._on_collection)
        self._result = WorkerHealth(
            cpu=(process_time_ns() - self._cpu_ns) / wall_ns,
            runqueue_wait=None
            if waited_ns is None or self._waited_ns is None
            else (waited_ns - self._waited_ns) / wall_ns,
            loop_lag_p50_ns=self._loop.lag_quantile_ns(0.5),
            loop_lag_p99_ns=self._loop.lag_quantile_ns(0.99),
            loop_lag_max_ns=self._loop.lag_max_ns,
            gc_pause_max_ns=self._gc_pause_max_ns,
            clock_resolution_ns=clock_resolution_ns(),
            own_lag_p999_ns=self._loop.lag_quantile_ns(0.999),
        )

    @property
    def result(self) -> WorkerHealth | None:
        """What was measured; None before `close`."""
        return self._result

    def _on_collection(self, phase: str, _info: dict[str, Any]) -> None:
        now = perf_counter_ns()
        if phase == "start":
            self._gc_began_ns = now
        else:
            self._gc_pause_max_ns = max(self._gc_pause_max_ns, now - self._gc_began_ns)


def clock_resolution_ns() -> int:
    """Return the smallest step in which `perf_counter_ns` advances, as seen by reading it over and over."""
    readings = [perf_counter_ns() for _ in range(_READINGS)]
    return min((after - before for before, after in pairwise(readings) if after > before), default=0)


def runqueue_wait_ns() -> int | None:
    """Return how long this process's main thread has waited for a core so far, None where the kernel does not say."""
    try:
        running, waiting, _slices = Path("/proc/self/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    # Sandboxed kernels offer the file without keeping the figures.
    return int(waiting) if int(running) else None


def quiet_collector() -> None:
    """Keep garbage collection out of the measurement: what exists is frozen, automatic collections are off."""
    gc.collect()
    gc.freeze()
    gc.disable()


def collect_young() -> None:
    """Collect what became garbage lately (cycles in a transaction's own code), at a moment of our choosing."""
    gc.collect(1)


def collect_all() -> None:
    """Collect all garbage; what existed before the measurement is frozen, and costs nothing."""
    gc.collect()


def worst(workers: Sequence[WorkerHealth]) -> GeneratorHealth:
    """Return the health of a generator: each figure from its worst worker."""
    waits = [one.runqueue_wait for one in workers if one.runqueue_wait is not None]
    lags = [one.schedule_lag_p99_ns for one in workers if one.schedule_lag_p99_ns is not None]
    return GeneratorHealth(
        cpu=max((one.cpu for one in workers), default=0.0),
        runqueue_wait=max(waits) if waits else None,
        loop_lag_p50_ns=max((one.loop_lag_p50_ns for one in workers), default=0),
        loop_lag_p99_ns=max((one.loop_lag_p99_ns for one in workers), default=0),
        loop_lag_max_ns=max((one.loop_lag_max_ns for one in workers), default=0),
        schedule_lag_p99_ns=max(lags) if lags else None,
        connection_wait_p99_ns=max((one.connection_wait_p99_ns for one in workers), default=0),
        gc_pause_max_ns=max((one.gc_pause_max_ns for one in workers), default=0),
        connection_wait_share=max((one.connection_wait_share for one in workers), default=0.0),
        clock_resolution_ns=max((one.clock_resolution_ns for one in workers), default=0),
        own_lag_p999_ns=max((one.own_lag_p999_ns for one in workers), default=0),
        connection_wait_p999_ns=max((one.connection_wait_p999_ns for one in workers), default=0),
    )
