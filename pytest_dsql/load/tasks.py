"""A pool: more application tasks than connections, each asking for the next one as soon as its request has ended."""

from __future__ import annotations

import random
from collections import deque
from itertools import accumulate
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dsql.load.loop import Loop
    from pytest_dsql.load.recorder import Recorder


@final
class TaskQueue(Waiting):
    """Lends connections to tasks in the order in which they ask, as a pool does. In place of a `queue.Queue`.

    A request begins when its task asks for a connection. A task without one waits however long it takes.
    """

    __slots__ = ("_asked_ns", "_choose", "_cumulated", "_ended", "_places", "_tasks")

    def __init__(
        self, loop: Loop, weights: Sequence[float], *, tasks: int, seed: int, ended: Callable[[], bool]
    ) -> None:
        super().__init__(loop)
        self._tasks = tasks
        self._cumulated: Final = list(accumulate(weights))
        self._places: Final = range(len(weights))
        self._choose: Final = random.Random(seed)
        self._ended: Final = ended  #: whether no request begins any more
        self._asked_ns: deque[int] = deque()  #: when those tasks asked that have no connection yet

    def begin(self, start_ns: int, window_start_ns: int, recorder: Recorder) -> None:
        """Let every task ask for the first time."""
        super().begin(start_ns, window_start_ns, recorder)
        self._asked_ns.extend([start_ns] * self._tasks)

    @property
    def over(self) -> bool:
        """Whether no task will ask any more, and none waits."""
        return not self._asked_ns and self._ended()

    def ended(self, now_ns: int) -> None:
        """Let the task whose request has ended ask again."""
        if not self._ended():
            self._asked_ns.append(now_ns)

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

    def settle(self) -> None:
        """Let connections go that have nothing to come."""
        if self.over:
            self._dismiss()

    def close(self, now_ns: int) -> None:  # noqa: ARG002 - in place of `Queue.close`
        """Let the tasks that wait go without their request: the cell is to end."""
        while self._asked_ns:
            self._leave(perf_counter_ns())
        self._loop.at(0, self.settle)

    def cancel(self) -> None:
        """Cancel what is waiting."""
        self.close(0)

    def _leave(self, now_ns: int) -> None:
        asked_ns = self._asked_ns.popleft()
        self.taken += 1
        self._lose(Outcome.CANCELLED, self._draw(), asked_ns, now_ns)
