"""A pool: more application tasks than connections, each asking for the next one as soon as its request has ended."""

from __future__ import annotations

import random
from collections import deque
from itertools import accumulate
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.load.lags import Lags
from pytest_dsql.load.measurement import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dsql.load.loop import Loop
    from pytest_dsql.load.queue import Carrier
    from pytest_dsql.load.recorder import Recorder


@final
class TaskQueue:
    """Lends connections to tasks in the order in which they ask, as a pool does. In place of a `queue.Queue`.

    A request begins when its task asks for a connection. A task without one waits however long it takes.
    """

    __slots__ = (
        "_asked_ns",
        "_choose",
        "_cumulated",
        "_ended",
        "_free",
        "_loop",
        "_places",
        "_recorder",
        "_tasks",
        "_window_start_ns",
        "lags",
        "taken",
        "waits",
    )

    def __init__(
        self, loop: Loop, weights: Sequence[float], *, tasks: int, seed: int, ended: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._tasks = tasks
        self._cumulated: Final = list(accumulate(weights))
        self._places: Final = range(len(weights))
        self._choose: Final = random.Random(seed)
        self._ended: Final = ended  #: whether no request begins any more
        self._asked_ns: deque[int] = deque()  #: when those tasks asked that have no connection yet
        self._free: deque[Carrier] = deque()
        self._window_start_ns = 0
        self._recorder: Recorder | None = None
        self.taken = 0  #: requests that were given a connection, or cancelled
        self.lags: Final = Lags(12)  #: of the window: how late a request left although a connection was free
        self.waits: Final = Lags(15)  #: of the window: how long requests waited because no connection was free

    def begin(self, start_ns: int, window_start_ns: int, recorder: Recorder) -> None:
        """Let every task ask for the first time."""
        self._window_start_ns = window_start_ns
        self._recorder = recorder
        self._asked_ns.extend([start_ns] * self._tasks)

    @property
    def over(self) -> bool:
        """Whether no task will ask any more, and none waits."""
        return not self._asked_ns and self._ended()

    def ended(self, now_ns: int) -> None:
        """Let the task whose request has ended ask again."""
        if not self._ended():
            self._asked_ns.append(now_ns)

    def wait(self, carrier: Carrier) -> None:
        """Call the carrier when there is something for it to take."""
        self._free.append(carrier)

    def withdraw(self, carrier: Carrier) -> None:
        """Don't call the carrier any more."""
        if carrier in self._free:
            self._free.remove(carrier)

    def take(self) -> tuple[int, int] | None:
        """Give the connection to the task that has waited longest; None when none waits."""
        if not self._asked_ns:
            return None
        self.taken += 1
        return self._asked_ns.popleft(), self._draw()

    def _draw(self) -> int:
        if len(self._cumulated) == 1:
            return 0
        return self._choose.choices(self._places, cum_weights=self._cumulated)[0]

    def sent(self, intended_ns: int, now_ns: int, *, was_free: bool) -> None:
        """Note how late a request was sent. `was_free`: not for want of a connection."""
        if intended_ns >= self._window_start_ns:
            if was_free:
                self.lags.count(now_ns - intended_ns)
                self.waits.count(0)
            else:
                self.waits.count(now_ns - intended_ns)

    def settle(self) -> None:
        """Let connections go that have nothing to come."""
        if self.over:
            while self._free:
                self._free.popleft().carry()

    def close(self, now_ns: int) -> None:  # noqa: ARG002 - in place of `Queue.close`
        """Let the tasks that wait go without their request: the cell is to end."""
        while self._asked_ns:
            self._leave(perf_counter_ns())
        self._loop.at(0, self.settle)

    def cancel(self) -> None:
        """Cancel what is waiting."""
        self.close(0)

    def _leave(self, now_ns: int) -> None:
        assert self._recorder is not None
        asked_ns = self._asked_ns.popleft()
        self.taken += 1
        self._recorder.ended(
            self._draw(),
            Outcome.CANCELLED,
            intended_ns=asked_ns,
            end_ns=now_ns,
            wait_ns=now_ns - asked_ns,
            backoff_ns=0,
            attempts=0,
        )

    @property
    def schedule_lag_p99_ns(self) -> int:
        """How late 99 % of the requests that found a connection free left at most; 0 without any."""
        return self.lags.quantile_ns(0.99)

    @property
    def connection_wait_p99_ns(self) -> int:
        """How long 99 % of all requests waited for a connection at most; 0 without any."""
        return self.waits.quantile_ns(0.99)

    @property
    def connection_wait_share(self) -> float:
        """The share of the requests that found no connection free."""
        return (self.waits.n - self.lags.n) / self.waits.n if self.waits.n else 0.0
