"""Open loop: the one queue of a worker. Requests come due by the schedule and wait for one of its connections.

One queue for all connections of a worker: while any of them is free no request waits, and a slow answer holds up nobody
behind it. (With a queue per connection, or many workers of few connections, requests wait although others are free: the
published harness had 16 workers of 16 connections and waited 190 ms at 8,100/s although the database took 28.)
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.waiting import Carrier, Waiting

if TYPE_CHECKING:
    from pytest_dsql.load.arrivals import Schedule
    from pytest_dsql.load.loop import Loop
    from pytest_dsql.load.recorder import Recorder

#: A request that has not been started so long after it was due is skipped, as the published experiment did.
SKIP_AFTER_NS: Final = 2_000_000_000
#: The schedule of a long cell is written out so far in advance, this often, and kept until so many were taken.
AHEAD_NS: Final = 2_000_000_000
_WRITE_OUT_NS: Final = 10_000_000
_FORGET_FROM: Final = 20_000


@final
class Queue(Waiting):
    """Hands out the requests that are due, in order of arrival.

    Nothing is moved about: what waits is the part of the schedule between the first request that nobody has taken and
    the present.
    """

    __slots__ = ("_after_ns", "_armed_ns", "_end", "_head", "_schedule", "_start_ns")

    def __init__(self, loop: Loop, schedule: Schedule) -> None:
        super().__init__(loop)
        self._schedule = schedule
        self._after_ns = schedule.after_ns
        self._end = len(schedule.after_ns)  #: requests behind it never arrive
        self._head = 0  #: the first request that nobody has taken
        self._armed_ns = 0  #: when the loop calls next; 0: it was not asked
        self._start_ns = 0

    def begin(self, start_ns: int, window_start_ns: int, recorder: Recorder) -> None:
        """Let the first request come due; `start_ns` is the start of the cell."""
        super().begin(start_ns, window_start_ns, recorder)
        self._start_ns = start_ns
        self._arm()
        self._write_out()

    def _write_out(self) -> None:
        """Write out the schedule of a long cell, a hundredth of a second at a time, and forget what was taken."""
        schedule = self._schedule
        if schedule.complete:
            return
        now_ns = perf_counter_ns()
        schedule.write_out(now_ns - self._start_ns + AHEAD_NS)
        if self._head > _FORGET_FROM:
            schedule.forget(self._head)
            self._head = 0
        self._end = len(self._after_ns)
        self._loop.at(now_ns + _WRITE_OUT_NS, self._write_out)
        if schedule.complete:
            self._loop.at(0, self._due)
        else:
            self._arm()

    @property
    def over(self) -> bool:
        """Whether every request was taken."""
        return self._head >= self._end and self._schedule.complete

    def wait(self, carrier: Carrier) -> None:
        """Call the carrier when there is something for it to take."""
        super().wait(carrier)
        self._arm()

    def take(self) -> tuple[int, int] | None:
        """Give the next request that is due, as its intended start and its place in the mix; None when there is none.

        Requests that have waited too long are skipped on the way.
        """
        now_ns = perf_counter_ns()
        head = self._head
        end = self._end
        after_ns = self._after_ns
        start_ns = self._start_ns
        while head < end:
            intended_ns = start_ns + after_ns[head]
            if intended_ns > now_ns:
                break
            self._head = head = head + 1
            self.taken += 1
            transaction = self._schedule.transactions[head - 1]
            if now_ns - intended_ns <= SKIP_AFTER_NS:
                return intended_ns, transaction
            self._lose(Outcome.SKIPPED, transaction, intended_ns, now_ns)
        return None

    def _arm(self) -> None:
        if not self._free or self._head >= self._end:
            return
        due_ns = self._start_ns + self._after_ns[self._head]
        if self._armed_ns == 0 or due_ns < self._armed_ns:
            self._armed_ns = due_ns
            self._loop.at(due_ns, self._due)

    def _due(self) -> None:
        """Give what is due to the connections that are free."""
        self._armed_ns = 0
        free = self._free
        after_ns = self._after_ns
        while free and self._head < self._end and self._start_ns + after_ns[self._head] <= perf_counter_ns():
            free.popleft().carry()
        if self.over:
            self._dismiss()
        self._arm()

    def settle(self) -> None:
        """Skip what has waited too long though nobody is free to find it."""
        now_ns = perf_counter_ns()
        first_ns = now_ns - self._start_ns - SKIP_AFTER_NS
        while self._head < self._end and self._after_ns[self._head] < first_ns:
            self._leave(Outcome.SKIPPED, now_ns)

    def close(self, now_ns: int) -> None:
        """Let nothing arrive after `now_ns`."""
        self._schedule.end()
        # By bisection it would be faster; it happens once, at the end of an interrupted cell.
        while self._end > self._head and self._start_ns + self._after_ns[self._end - 1] > now_ns:
            self._end -= 1
        self._loop.at(0, self._due)

    def cancel(self) -> None:
        """Cancel what is waiting."""
        now_ns = perf_counter_ns()
        self.close(now_ns)
        while self._head < self._end:
            self._leave(Outcome.CANCELLED, now_ns)

    def _leave(self, outcome: Outcome, now_ns: int) -> None:
        head = self._head
        self._head = head + 1
        self.taken += 1
        self._lose(outcome, self._schedule.transactions[head], self._start_ns + self._after_ns[head], now_ns)

    def _lose(self, outcome: Outcome, transaction: int, intended_ns: int, now_ns: int) -> None:
        super()._lose(outcome, transaction, intended_ns, now_ns)
        if intended_ns >= self._window_start_ns:
            self.waits.count(now_ns - intended_ns)
