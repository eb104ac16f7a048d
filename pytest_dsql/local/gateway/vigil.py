"""Keeps the loop awake for a moment when something is about to come, where nobody else wants the processor.

A process that sleeps is woken by an interrupt to its core, and in a virtual machine an idle core has to be brought
back first: of one connection's round trip that is a good part, twice in the gateway. So after a statement went to
PostgreSQL, and after its answer went to the client, the loop looks again and again, without sleeping, for a time in
which a short statement is answered, or a client sends the next one.

It gives way. Between two looks it yields its core; when somebody took it, there is no core to spare, and it sleeps as
ever for some time, longer each time that happens. Nor does it look where several sessions are busy at once. What didn't
come in time is hoped for less often: a client that thinks, or a statement that takes longer, costs next to nothing.
Where the process has one core only it always sleeps.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final, final

#: How long to look. A statement by key takes PostgreSQL 30 to 60 us, a client's next one comes as soon.
_WINDOW_S: Final = 0.000_150
#: A yield that takes longer has let somebody else run. Where nothing has come then, it was for something else.
_TAKEN_S: Final = 0.000_030
#: After so long a time it is better to sleep, whatever has come: who is woken needn't wait for the end of a time slice.
_LONG_S: Final = 0.000_300
#: How long to sleep as ever then, at first and at most.
_REST_S: Final = 0.01
_LONGEST_REST_S: Final = 1.0
#: What didn't come so many times is hoped for once in 2 ** so many.
_MOST_MISSES: Final = 8


@final
class Hope:
    """One kind of what may come, and how it went lately."""

    __slots__ = ("misses", "passes")

    def __init__(self) -> None:
        self.misses = 0  #: in a row
        self.passes = 0  #: how often it isn't waited for, before it is again

    def missed(self) -> None:
        """It didn't come in time."""
        self.misses = min(self.misses + 1, _MOST_MISSES)
        self.passes = (1 << self.misses) - 1


@final
class Vigil:
    """One loop's wakefulness."""

    __slots__ = (
        "_awake",
        "_enabled",
        "_hope",
        "_looked",
        "_loop",
        "_rest_s",
        "_rests_until",
        "_shared",
        "_until",
        "answer",
        "statement",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, *, cores: int | None = None) -> None:
        self.answer = Hope()  #: of PostgreSQL
        self.statement = Hope()  #: of the client, after the answer to its last one
        self._loop = loop
        self._enabled = (_cores() if cores is None else cores) > 1 and hasattr(os, "sched_yield")
        self._awake = False  #: a look is due
        self._looked = False  #: there was one since what is hoped for was said
        self._hope = self.answer
        self._until = 0.0  #: on time.perf_counter; 0 where nothing is waited for
        self._shared = False  #: somebody else has run here since the last look
        self._rests_until = 0.0
        self._rest_s = _REST_S

    def stay(self, hope: Hope) -> None:
        """Stay awake for what is hoped for; what was before has come."""
        if self._awake:
            if not self._looked:
                # Several messages have come at once: the loop has enough to do.
                self._until = 0.0
                return
            if self._until:
                self._hope.misses = 0
                self._until = 0.0
                self._shared = False
                if self._rest_s > _REST_S:
                    self._rest_s *= 0.99
        if hope.passes:
            hope.passes -= 1
            return
        now = time.perf_counter()
        if now < self._rests_until or not self._enabled:
            return
        self._hope = hope
        self._until = now + _WINDOW_S
        self._looked = False
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Let the loop look for what has come, and come back."""
        self._looked = True
        before = time.perf_counter()
        if before >= self._until:
            if self._until:
                self._hope.missed()
        elif not self._shared:
            os.sched_yield()
            taken_s = time.perf_counter() - before
            if taken_s < _LONG_S:
                # It may have been PostgreSQL itself that ran here, and has answered.
                self._shared = taken_s > _TAKEN_S
                self._loop.call_soon(self._look)
                return
            self._rest(before)
        else:
            self._rest(before)
        self._awake = self._shared = False
        self._until = 0.0

    def _rest(self, now: float) -> None:
        self._rests_until = now + self._rest_s
        self._rest_s = min(2 * self._rest_s, _LONGEST_REST_S)


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
