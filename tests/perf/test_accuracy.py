"""The generator's figures against a server that notes how long its answers took: percentiles, rates, stalls, counts.

On a busy machine a window's run-queue wait tells that its figures are not to be trusted; then the test says so and
skips what it can't show. `pytest tests/perf/test_accuracy.py -s` shows the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.transaction import Context, Mix, Steps, Transaction
from tests.load.conftest import cell_plan, fake_endpoint

MS = 1_000_000
RATE = 500.0
SECONDS = 10.0
CONNECTIONS = 64
#: Of the window, that a process may have waited for a core: 20 us for each of 500 requests a second.
CLEAN = 0.01
#: How often a window is measured until one is clean.
TRIES = 6


def steps(ctx: Context) -> Steps:
    yield "SELECT /*known*/ $1", (ctx.operation_id,)
    return None


MIX = Mix({Transaction(steps, "read", "known", block=False): 1})


@contextmanager
def known_server(seed: int, stall_at: int = 0, stall_ms: int = 0) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """Start the server; yield its port, and what ends it and returns its notes."""
    command = [sys.executable, "-m", "tests.perf.known_server", str(seed), str(stall_at), str(stall_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        out, into = process.stdout, process.stdin

        def notes() -> dict[str, Any]:
            into.close()
            found: dict[str, Any] = json.loads(out.read())
            return found

        try:
            yield int(out.readline()), notes
        finally:
            process.kill()


def measure(port: int, arrival: Arrival) -> Measurement:
    plan = cell_plan(fake_endpoint(port), MIX, arrival=arrival, connections=CONNECTIONS, window_s=SECONDS)
    return run_cell(plan)


def at_rank(values: array[int] | list[int], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] / MS


def count_is_the_servers(measured: Measurement, told: dict[str, Any]) -> None:
    """Whatever the machine does, no answer is lost and none is made up: the others were never sent, and are counted."""
    (samples,) = measured.samples.values()
    assert samples.count(Outcome.OK) == len(told["took_ns"])
    assert samples.count(Outcome.OK) + samples.count(Outcome.SKIPPED) == len(samples)
    assert len(samples) == pytest.approx(RATE * SECONDS, abs=1)


def test_percentiles_rate_and_number_are_the_servers_own() -> None:
    for attempt in range(TRIES):
        with known_server(attempt) as (port, notes):
            measured = measure(port, Arrival("constant", RATE))
            told = notes()
        (samples,) = measured.samples.values()
        count_is_the_servers(measured, told)
        assert len(samples) / measured.duration_s == pytest.approx(RATE, rel=0.005)
        health = measured.generator
        shares = (0.5, 0.9, 0.95, 0.99, 0.999)
        pairs = [(at_rank(samples.service_ns, share), at_rank(told["took_ns"], share)) for share in shares]
        print(
            f"\nrun-queue wait {health.runqueue_wait:.2%}, loop lag p99 {health.loop_lag_p99_ns / MS:.3f} ms", end="; "
        )
        print(
            ", ".join(
                f"p{100 * share:g} {ours:.3f} ({theirs:.3f})"
                for share, (ours, theirs) in zip(shares, pairs, strict=True)
            )
        )
        if (health.runqueue_wait or 0.0) > CLEAN or told["waited_ns"] / 1e9 / SECONDS > CLEAN:
            continue  # ours is flagged; the server's own notes know nothing of what waited for it
        for ours, theirs in pairs:
            assert abs(ours - theirs) <= max(0.02 * theirs, 0.3)
        return
    pytest.skip(f"generator or server waited for a core in each of {TRIES} windows: no window is clean here")


def test_closed_loop_counts_what_the_server_answered() -> None:
    with known_server(1) as (port, notes):
        measured = measure(port, Arrival("closed"))
        told = notes()
    (samples,) = measured.samples.values()
    assert samples.count(Outcome.OK) + samples.count(Outcome.CANCELLED) == len(samples)
    # Those in flight when the window closed are drained: answered, and counted where they began.
    assert abs(len(samples) - len(told["took_ns"])) <= CONNECTIONS
    assert len(samples) / measured.duration_s == pytest.approx(len(told["took_ns"]) / SECONDS, rel=0.005)


def test_a_stall_is_charged_to_every_request_that_it_hit() -> None:
    stall_ms = 400
    with known_server(2, stall_at=int(RATE * SECONDS / 2), stall_ms=stall_ms) as (port, notes):
        measured = measure(port, Arrival("constant", RATE))
        told = notes()
    (samples,) = measured.samples.values()
    count_is_the_servers(measured, told)
    (stalled_ns,) = told["stalls_ns"]
    assert stalled_ns >= stall_ms * MS
    # Requests were to start all through the stall: each waited for the rest of it, at least, or was skipped for it.
    longer = {rest: sum(one >= rest * MS for one in samples.latency_ns) for rest in (100, 200, 300)}
    due = {rest: (stalled_ns / MS - rest) * RATE / 1000 for rest in longer}
    print(f"\na stall of {stalled_ns / MS:.0f} ms: {longer} requests took so many ms or longer, {due} were to")
    for rest, count in longer.items():
        assert count >= due[rest] - 2
