"""Requests that wait for one of a worker's connections: what the queues of an open loop and of a pool share."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from pytest_dsql.load.lags import Lags
from pytest_dsql.load.measurement import Outcome

if TYPE_CHECKING:
    from pytest_dsql.load.loop import Loop
    from pytest_dsql.load.recorder import Recorder


class Carrier(Protocol):
    """A connection that carries requests."""

    def carry(self) -> None:
        """Take what is due from the queue, and begin it."""


class Waiting:
    """The connections that are free, and how long requests waited."""

    __slots__ = ("_free", "_loop", "_recorder", "_window_start_ns", "lags", "taken", "waits")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._free: deque[Carrier] = deque()
        self._window_start_ns = 0
        self._recorder: Recorder | None = None
        self.taken = 0  #: requests that were given to a connection, skipped or cancelled
        self.lags: Final = Lags(12)  #: of the window: how late a request left although a connection was free
        self.waits: Final = Lags(15)  #: of the window: how long requests waited because no connection was free

    def begin(self, start_ns: int, window_start_ns: int, recorder: Recorder) -> None:  # noqa: ARG002 - subclasses use it
        """Let the first request come; `start_ns` is the start of the cell."""
        self._window_start_ns = window_start_ns
        self._recorder = recorder

    def wait(self, carrier: Carrier) -> None:
        """Call the carrier when there is something for it to take."""
        self._free.append(carrier)

    def withdraw(self, carrier: Carrier) -> None:
        """Don't call the carrier any more."""
        if carrier in self._free:
            self._free.remove(carrier)

    def sent(self, intended_ns: int, now_ns: int, *, was_free: bool) -> None:
        """Note how late a request was sent. `was_free`: not for want of a connection."""
        if intended_ns >= self._window_start_ns:
            if was_free:
                self.lags.count(now_ns - intended_ns)
                self.waits.count(0)
            else:
                self.waits.count(now_ns - intended_ns)

    def _dismiss(self) -> None:
        """Let the free connections find that nothing is to come."""
        free = self._free
        while free:
            free.popleft().carry()

    def _lose(self, outcome: Outcome, transaction: int, intended_ns: int, now_ns: int) -> None:
        """Note the end of a request that was never sent."""
        assert self._recorder is not None
        self._recorder.ended(
            transaction,
            outcome,
            intended_ns=intended_ns,
            end_ns=now_ns,
            wait_ns=now_ns - intended_ns,
            backoff_ns=0,
            attempts=0,
        )

    @property
    def schedule_lag_p99_ns(self) -> int:
        """How late 99 % of the requests that found a connection free left at most; 0 without any."""
        return self.lags.quantile_ns(0.99)

    @property
    def schedule_lag_p999_ns(self) -> int:
        """Likewise of 99.9 %."""
        return self.lags.quantile_ns(0.999)

    @property
    def connection_wait_p99_ns(self) -> int:
        """How long 99 % of all requests waited for a connection at most; 0 without any."""
        return self.waits.quantile_ns(0.99)

    @property
    def connection_wait_p999_ns(self) -> int:
        """Likewise of 99.9 %."""
        return self.waits.quantile_ns(0.999)

    @property
    def connection_wait_share(self) -> float:
        """The share of the requests that found no connection free."""
        return (self.waits.n - self.lags.n) / self.waits.n if self.waits.n else 0.0
