"""The queue of open loop, apart from connections."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from time import perf_counter_ns

import pytest

from pytest_dsql.load import queue as queue_module
from pytest_dsql.load.arrivals import Schedule, schedule_of
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.measurement import Arrival, Outcome
from pytest_dsql.load.queue import SKIP_AFTER_NS, Queue
from pytest_dsql.load.recorder import Recorder
from pytest_dsql.transaction import Context, Steps, transaction

SECOND = 1_000_000_000
MS = 1_000_000


@transaction(kind="read")
def one(_ctx: Context) -> Steps:
    yield "SELECT 1", ()
    return None


@transaction(kind="read")
def two(_ctx: Context) -> Steps:
    yield "SELECT 2", ()
    return None


class Carrier:
    """Takes one request each time it is called; the last one stops the loop."""

    def __init__(self, queue: Queue, loop: Loop, calls: int) -> None:
        self.queue, self.loop, self.calls = queue, loop, calls
        self.taken: list[tuple[int, int] | None] = []

    def carry(self) -> None:
        self.taken.append(self.queue.take())
        self.calls -= 1
        if self.calls:
            self.queue.wait(self)
        else:
            self.loop.stop()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    loop.precise = True
    yield loop
    loop.close()


def recorder_from(window_start_ns: int) -> Recorder:
    return Recorder((one, two), window_start_ns=window_start_ns, window_end_ns=window_start_ns + 100 * SECOND)


def queue_of(loop: Loop, after_ns: list[int], *, started_ago_ns: int = 0) -> tuple[Queue, Recorder, int]:
    """A queue whose cell began so long ago; every second request is of the second transaction."""
    queue = Queue(loop, Schedule(array("q", after_ns), array("H", [n % 2 for n in range(len(after_ns))])))
    start_ns = perf_counter_ns() - started_ago_ns
    recorder = recorder_from(start_ns)
    queue.begin(start_ns, start_ns, recorder)
    return queue, recorder, start_ns


def outcomes(recorder: Recorder) -> dict[str, int]:
    return {one.name: count for one, count in zip(Outcome, recorder.take().outcomes, strict=True) if count}


def test_what_is_due_is_taken_in_order_and_nothing_else(loop: Loop) -> None:
    queue, _, start_ns = queue_of(loop, [0, SECOND, 100 * SECOND], started_ago_ns=SECOND)
    assert queue.take() == (start_ns, 0)
    assert queue.take() == (start_ns + SECOND, 1)
    assert queue.take() is None
    assert not queue.over
    assert queue.taken == 2


def test_a_free_carrier_is_called_when_a_request_comes_due(loop: Loop) -> None:
    queue, _, start_ns = queue_of(loop, [20_000_000, 40_000_000])
    carrier = Carrier(queue, loop, calls=2)
    queue.wait(carrier)
    loop.run()
    assert carrier.taken == [(start_ns + 20_000_000, 0), (start_ns + 40_000_000, 1)]
    assert perf_counter_ns() >= start_ns + 40_000_000


def test_everybody_who_is_free_is_called_when_nothing_is_to_come(loop: Loop) -> None:
    queue, _, _ = queue_of(loop, [10_000_000])
    first, second = Carrier(queue, loop, calls=2), Carrier(queue, loop, calls=1)
    queue.wait(first)
    queue.wait(second)
    loop.run()
    assert first.taken[0] is not None
    assert second.taken == [None]
    assert queue.over


def test_a_carrier_that_withdrew_is_not_called(loop: Loop) -> None:
    queue, _, _ = queue_of(loop, [10_000_000])
    gone, there = Carrier(queue, loop, calls=1), Carrier(queue, loop, calls=1)
    queue.wait(gone)
    queue.wait(there)
    queue.withdraw(gone)
    loop.run()
    assert gone.taken == []
    assert len(there.taken) == 1


def test_a_request_that_waited_too_long_is_skipped_when_somebody_looks(loop: Loop) -> None:
    queue, recorder, start_ns = queue_of(loop, [0, SECOND], started_ago_ns=SKIP_AFTER_NS + SECOND // 2)
    assert queue.take() == (start_ns + SECOND, 1)
    assert outcomes(recorder) == {"SKIPPED": 1}
    assert queue.taken == 2


def test_a_request_that_waited_too_long_is_skipped_although_nobody_is_free(loop: Loop) -> None:
    queue, recorder, _ = queue_of(loop, [0, SECOND], started_ago_ns=SKIP_AFTER_NS + SECOND // 2)
    queue.settle()
    assert outcomes(recorder) == {"SKIPPED": 1}


def test_what_waits_is_cancelled_and_what_has_not_arrived_never_was(loop: Loop) -> None:
    queue, recorder, _ = queue_of(loop, [0, 100 * SECOND], started_ago_ns=SECOND)
    queue.cancel()
    assert outcomes(recorder) == {"CANCELLED": 1}
    assert queue.taken == 1
    assert queue.over


def test_a_lost_request_has_waited_all_its_time(loop: Loop) -> None:
    queue, recorder, _ = queue_of(loop, [0], started_ago_ns=SKIP_AFTER_NS + 1)
    queue.settle()
    (samples, _) = recorder.take().samples
    assert samples.wait_ns == samples.latency_ns
    assert samples.latency_ns[0] > SKIP_AFTER_NS
    assert list(samples.attempts) == [0]


def test_late_sending_is_the_generators_and_waiting_the_connections(loop: Loop) -> None:
    queue, _, start_ns = queue_of(loop, [0])
    for lag in range(100):
        queue.sent(start_ns, start_ns + lag * MS, was_free=True)
    queue.sent(start_ns, start_ns + SECOND, was_free=False)
    assert 98 * MS <= queue.schedule_lag_p99_ns <= 98 * MS + 4_096
    assert queue.connection_wait_p99_ns == 0  # one of 101
    queue.sent(start_ns, start_ns + 2 * SECOND, was_free=False)
    assert SECOND <= queue.connection_wait_p99_ns <= SECOND + 32_768
    assert queue.connection_wait_share == 2 / 102


def test_a_long_schedule_is_written_out_and_forgotten_while_it_goes_on(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "AHEAD_NS", 50 * MS)
    monkeypatch.setattr(queue_module, "_FORGET_FROM", 100)
    arrivals = Arrival("constant", 5_000.0)
    schedule = schedule_of(arrivals, [1.0], seed=1, length_s=2.0, worker=0, workers=1, until_s=0.05)
    queue = Queue(loop, schedule)
    longest = 0

    class Greedy:
        def carry(self) -> None:
            nonlocal longest
            longest = max(longest, len(schedule.after_ns))
            while queue.take() is not None:
                pass
            if queue.over:
                loop.stop()
            else:
                queue.wait(self)

    start_ns = perf_counter_ns()
    queue.begin(start_ns, start_ns, recorder_from(start_ns))
    queue.wait(Greedy())
    loop.run()
    assert queue.taken == 10_000
    assert longest < 5_000
    assert perf_counter_ns() - start_ns >= 1.99 * SECOND


def test_the_warm_up_counts_for_neither(loop: Loop) -> None:
    queue, _, start_ns = queue_of(loop, [0])
    queue.sent(start_ns - 1, start_ns + SECOND, was_free=True)
    queue.sent(start_ns - 1, start_ns + SECOND, was_free=False)
    assert queue.schedule_lag_p99_ns == queue.connection_wait_p99_ns == 0
