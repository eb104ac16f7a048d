"""The event loop of one worker: sockets, timers, and how long ready answers waited for the loop.

What one look finds ready is served in phases over all of it: what arrived is read from every connection, then every
answer is acted on, then everything is sent. Connection by connection, each answer would go through the kernel, OpenSSL,
libpq, the interpreter and back, and find its caches cold at every one of them: measured in the driver with 16
connections over TLS, 66 us of CPU per statement, against 49 us in phases.
"""

from __future__ import annotations

import heapq
import select
import selectors
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Final, Protocol, TypeAlias, final

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

OnReady: TypeAlias = Callable[[int], None]


class Phased(Protocol):
    """A connection that is served in phases."""

    def act(self) -> None:
        """Act on what was read; what is to be sent goes into the loop's `outbox`."""

    def dispatch(self) -> None:
        """Send it."""


@final
class Poll:
    """What epoll offers, by way of `poll`: for platforms without epoll. Both have the same bits."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, timeout: float | None, _maxevents: int) -> list[tuple[int, int]]:
        """Wait for at most `timeout` seconds; return descriptors and what they are ready for."""
        return self._poll.poll(None if timeout is None else timeout * 1e3)

    def close(self) -> None:
        """Nothing to release."""


if sys.platform == "linux":
    # Not the selector of the standard library, whose own work per event is Python: measured in the driver with 16
    # connections over TLS, 50 us of CPU per answer against 54.
    NewPoller: Final = select.epoll
else:
    NewPoller: Final = Poll

_MASKS: Final = {READ: select.POLLIN, WRITE: select.POLLOUT, READ | WRITE: select.POLLIN | select.POLLOUT}
_READABLE: Final = select.POLLIN

#: Lags are counted in classes of 2**10 ns (about 1 us) up to 67 ms; longer ones in the last class.
_LAG_SHIFT: Final = 10
_LAG_CLASSES: Final = 1 << 16
#: Sockets told of at one look, at most: what is ready besides is told at the next. (epoll allots room for 1023 if not
#: told otherwise, 12 KB at each look.)
_AT_ONCE: Final = 256
#: Timers due this soon are waited for with `select`, in open loop. Nanoseconds.
_PRECISELY_NS: Final = 20_000_000
#: A poll that took longer than this has waited: what it found was not ready before. (One that finds its sockets ready
#: takes 1 us, in sandboxes up to 50 us.)
_IMMEDIATE_NS: Final = 100_000


@final
class Loop:
    """Calls back when sockets are ready and when timers are due, in one thread."""

    def __init__(self) -> None:
        self._poller = NewPoller()
        self._callbacks: dict[int, OnReady] = {}
        self._events: dict[int, int] = {}
        self._fresh: set[int] = set()  #: descriptors that were added since the last look: it told nothing of them
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._running = False
        self._lags = array("Q", bytes(8 * _LAG_CLASSES))
        self._lag_max_ns = 0
        self.arrived: Final[list[Phased]] = []  #: what was read from in this round; acted on once all are read
        self.outbox: Final[list[Phased]] = []  #: what has something to send; sent once all were acted on
        self.precise = False  #: keep timers to some 0.1 ms; epoll and poll alone keep them to the next millisecond
        self.woke_ns = perf_counter_ns()  #: when the loop last learned what is ready: the time stamp of answers

    def add(self, fileno: int, events: int, callback: OnReady) -> None:
        """Call `callback(ready events)` whenever `fileno` is ready for one of `events`."""
        self._poller.register(fileno, _MASKS[events])
        self._callbacks[fileno] = callback
        self._events[fileno] = events
        self._fresh.add(fileno)

    def change(self, fileno: int, events: int, callback: OnReady) -> None:
        """Watch `fileno` for other events, or with another callback."""
        self._poller.modify(fileno, _MASKS[events])
        self._callbacks[fileno] = callback
        self._events[fileno] = events

    def remove(self, fileno: int) -> None:
        """Stop watching `fileno`, which may be closed already."""
        del self._callbacks[fileno], self._events[fileno]
        with suppress(OSError):
            self._poller.unregister(fileno)

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        """Call `callback` once at `when_ns` (perf_counter_ns), or soon after."""
        self._timers_made += 1
        heapq.heappush(self._timers, (when_ns, self._timers_made, callback))

    def stop(self) -> None:
        """Let `run` return after the callbacks that are due now."""
        self._running = False

    def run(self) -> None:
        """Serve sockets and timers until `stop`."""
        # The hot path of the generator: plain and in one place.
        poll = self._poller.poll
        callbacks = self._callbacks
        fresh = self._fresh
        clock = perf_counter_ns
        timers = self._timers
        lags = self._lags
        arrived = self.arrived
        outbox = self.outbox
        last = _LAG_CLASSES - 1
        # An epoll is ready when one of its sockets is, and `select` can wait for that by the microsecond.
        number = getattr(self._poller, "fileno", None)
        watched = None if number is None else [number()]
        self._running = True
        woke = clock()
        while self._running:
            entered = clock()
            due = timers[0][0] - entered if timers else -1
            if 0 < due < _PRECISELY_NS and watched is not None and self.precise:
                select.select(watched, (), (), due * 1e-9)
                due = 0
            ready = poll(max(0.0, due * 1e-9) if timers else None, _AT_ONCE)
            busy = entered - woke
            self.woke_ns = woke = clock()
            # What was ready at once may have been so since the last look: an upper bound of its wait.
            carried = busy if woke - entered < _IMMEDIATE_NS else 0
            fresh.clear()
            for fileno, mask in ready:
                # A callback may close a descriptor that is ready too, and even open another of its number.
                if fileno not in fresh and (callback := callbacks.get(fileno)) is not None:
                    callback(READ if mask == _READABLE else self._events[fileno] & _ready_events(mask))
            for link in arrived:
                link.act()
            arrived.clear()
            for link in outbox:
                link.dispatch()
            outbox.clear()
            if ready:
                # One entry for the round: the wait of its last answer stands for all of them. That waited for the work
                # on the others in every phase, up to when what follows from it was sent.
                lag = carried + (clock() - woke) * (len(ready) - 1) // len(ready)
                kind = lag >> _LAG_SHIFT
                lags[min(kind, last)] += len(ready)
                if lag > self._lag_max_ns:
                    self._lag_max_ns = lag
            while timers and timers[0][0] <= woke:
                heapq.heappop(timers)[2]()
            for link in outbox:
                link.dispatch()
            outbox.clear()

    def reset_lags(self) -> None:
        """Forget the lags so far (when the window opens)."""
        self._lags[:] = array("Q", bytes(8 * _LAG_CLASSES))  # in place: `run` holds the array
        self._lag_max_ns = 0

    def lag_quantile_ns(self, share: float) -> int:
        """Return the lag that `share` of the answers did not exceed, to about 1 us; 0 without answers."""
        total = sum(self._lags)
        rank = share * total
        running = 0
        for kind, count in enumerate(self._lags):
            running += count
            if count and running >= rank:
                return min((kind + 1) << _LAG_SHIFT, self._lag_max_ns)
        return 0

    @property
    def lag_max_ns(self) -> int:
        """The longest lag."""
        return self._lag_max_ns

    def close(self) -> None:
        """Release the poller."""
        self._poller.close()


def _ready_events(mask: int) -> int:
    """Return the events in a mask of poll's; an error or a hang-up is met by reading as well as by writing."""
    return (READ if mask & ~select.POLLOUT else 0) | (WRITE if mask & ~select.POLLIN else 0)
