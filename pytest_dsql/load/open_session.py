"""A connection slot that takes what is due from its worker's queue: by the schedule, or from the tasks of a pool."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.load.attempt import Sign
from pytest_dsql.load.link import Asking
from pytest_dsql.load.session import Session

if TYPE_CHECKING:
    from pytest_dsql.load.driver import Driver
    from pytest_dsql.load.queue import Queue
    from pytest_dsql.load.tasks import TaskQueue

#: A turn: nothing is due, or there is something to see to before the next request.
_PAUSE: Final = Sign()


class OpenSession(Session):
    """Carries one request after the other while there is one due, and waits for the next one otherwise."""

    __slots__ = ("_queue", "_was_free")

    def __init__(self, driver: Driver, slot: int, queue: Queue | TaskQueue) -> None:
        super().__init__(driver, slot)
        self._queue = queue
        self._was_free = False  #: there was no request due when this connection had nothing to do

    def carry(self) -> None:
        """Take what is due from the queue, and begin it."""
        self._resume(None)

    def _requests(self) -> Asking:
        loop = self._loop
        queue = self._queue
        driver = self._driver
        self._turn_to(driver.plan.mix.transactions[0])
        while True:
            if loop.woke_ns >= self._replace_at_ns and self._pgconn is not None:
                yield from self._replace()
            if not self._take():
                if queue.over:
                    break
                self._idle = True  # the connection may break meanwhile
                queue.wait(self)
                yield
                self._was_free = True
                continue
            self._idle = False
            if self._pgconn is None:
                self._open()
                ended = yield from self._attempt()
            else:
                turn = self._start()
                if turn is None:
                    self._carrying = True
                    turn = yield
                    self._carrying = False
                    if turn is _PAUSE:
                        continue
                ended = yield from self._see_through(turn)
            if self._opening:
                self._nothing_sent(ended)
            if ended is None:
                self._note()
            else:
                yield from self._go_on(ended)
        self._idle = True

    def _take(self) -> bool:
        """Take the next request that is due; tell whether there is one."""
        due = self._queue.take()
        if due is None:
            return False
        self._intended_ns, index = due
        if index != self._index:
            self._turn_to(self._driver.plan.mix.transactions[index])
        self._context.next_request()
        self._opening = True
        return True

    def _open(self) -> None:
        self._opening = False
        self.begun += 1
        now_ns = perf_counter_ns()
        self._waited_ns = now_ns - self._intended_ns
        self._queue.sent(self._intended_ns, now_ns, was_free=self._was_free)
        self._was_free = False

    def _note(self) -> None:
        self._starts.append(self._intended_ns)
        # The answer may have been there before the clock was read for the sending, on another core.
        self._ends.append(max(self._loop.woke_ns, self._intended_ns + self._waited_ns))
        self._waits.append(self._waited_ns)
        self._intended_ns = 0

    def _next_request(self) -> Any:
        self._note()
        if self._loop.woke_ns >= self._replace_at_ns or not self._take():
            self._stage = 0
            return _PAUSE
        return self._start()

    def cancel(self) -> None:
        """End the session at once; see `Session.cancel`."""
        self._queue.withdraw(self)
        super().cancel()


@final
class PooledSession(OpenSession):
    """A connection of a pool: carries the requests of the tasks that wait for one."""

    __slots__ = ("_tasks",)

    def __init__(self, driver: Driver, slot: int, queue: TaskQueue) -> None:
        super().__init__(driver, slot, queue)
        self._tasks = queue

    def _take(self) -> bool:
        taken = super()._take()
        # A task that has just ended its request gets the connection back when nobody else waits: it found one free.
        if taken and self._intended_ns == self._loop.woke_ns:
            self._was_free = True
        return taken

    def _note(self) -> None:
        super()._note()
        self._tasks.ended(self._loop.woke_ns)

    def _forget_request(self) -> None:
        super()._forget_request()
        self._tasks.ended(self._loop.woke_ns)
