from __future__ import annotations

import gc
from time import perf_counter_ns

from pytest_dsql.load.health import HealthMonitor, WorkerHealth, worst
from pytest_dsql.load.loop import Loop


def test_a_busy_worker_shows_its_cpu_and_its_collections() -> None:
    monitor = HealthMonitor(Loop())
    callbacks = len(gc.callbacks)
    monitor.open()
    until = perf_counter_ns() + 30_000_000
    while perf_counter_ns() < until:
        pass
    gc.collect()
    monitor.close()
    monitor.close()
    result = monitor.result
    assert result is not None
    assert 0 < result.cpu < 1.5
    assert result.gc_pause_max_ns > 0
    assert len(gc.callbacks) == callbacks


def test_a_window_that_never_opened_has_no_health() -> None:
    monitor = HealthMonitor(Loop())
    monitor.close()
    assert monitor.result is None


def test_each_figure_comes_from_its_worst_worker() -> None:
    health = worst([WorkerHealth(0.9, None, 1, 20, 300, 4, own_lag_p999_ns=7), WorkerHealth(0.1, 0.3, 2, 10, 900, 8)])
    assert health.own_lag_p999_ns == 7
    assert (health.cpu, health.runqueue_wait) == (0.9, 0.3)
    assert (health.loop_lag_p50_ns, health.loop_lag_p99_ns, health.loop_lag_max_ns) == (2, 20, 900)
    assert health.gc_pause_max_ns == 8


def test_without_workers_nothing_is_claimed() -> None:
    health = worst([])
    assert (health.cpu, health.runqueue_wait) == (0.0, None)
