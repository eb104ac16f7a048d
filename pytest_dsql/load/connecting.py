"""Connection attempts in the event loop: each driven to its end or its time-out, and counted."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import fields
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, TypeAlias, final

from pytest_dsql.connect.dialer import Dial, may_be_stale
from pytest_dsql.errors import ConnectionFailed, CredentialsError
from pytest_dsql.load.measurement import ConnectStats
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from pytest_dsql.connect.dialer import Phases
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.load.loop import Loop

#: Of more connections than this a random choice of as many shows how long they took: the others are only counted.
MOST_TIMED: Final = 50_000

#: Called with the connection, or with why there is none.
Decided: TypeAlias = "Callable[[PGconn | ConnectionFailed], None]"


def unanswered(error: Exception) -> ConnectionFailed:
    """Tell of a connection that was made but did not answer: it is none."""
    return ConnectionFailed(
        f"connected, but SELECT 1 failed: {error}", phase="startup", sqlstate=getattr(error, "sqlstate", None)
    )


@final
class ConnectLog:
    """Counts connection attempts into a `ConnectStats`."""

    def __init__(self) -> None:
        self.stats = ConnectStats()
        self._chance: Final = random.Random(0)

    def made(self, phases: Phases) -> None:
        """Count a connection that was made, and how long its phases took."""
        stats = self.stats
        stats.attempted += 1
        stats.succeeded += 1
        if stats.succeeded > MOST_TIMED:
            # Algorithm R (Vitter 1985, "Random sampling with a reservoir"): each is kept with the same chance.
            place = self._chance.randrange(stats.succeeded)
            if place < MOST_TIMED:
                for phase in fields(phases):
                    stats.phases_ns[phase.name.removesuffix("_ns")][place] = getattr(phases, phase.name)
            return
        for phase in fields(phases):
            value = getattr(phases, phase.name)
            name = phase.name.removesuffix("_ns")
            if name not in stats.phases_ns:
                stats.phases_ns[name] = array("q")
            stats.phases_ns[name].append(value)

    def refused(self, error: ConnectionFailed) -> None:
        """Count an attempt that failed."""
        stats = self.stats
        stats.attempted += 1
        key = error.sqlstate or "connection"
        stats.refused[key] = stats.refused.get(key, 0) + 1
        stats.messages.setdefault(key, mask(str(error)))


@final
class Connecting:
    """One connection attempt; `decided` is called once, from the loop and never from the constructor.

    It is counted in `log`; with `on_trial`, one that was made is left to the caller, who counts it by its `phases`.
    One whose token was used before and is refused now begins anew with a fresh token, once, and counts as one.
    """

    __slots__ = (
        "_decided",
        "_dial",
        "_endpoint",
        "_fileno",
        "_log",
        "_loop",
        "_on_trial",
        "_patience_s",
        "_renewed",
        "_signed_before",
        "_timeout_s",
        "_tokens",
        "_waits",
        "phases",
    )

    phases: Phases  #: once it was made

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        tokens: TokenSource,
        log: ConnectLog,
        *,
        timeout_s: float,
        decided: Decided,
        on_trial: bool = False,
    ) -> None:
        self._on_trial = on_trial
        self._loop = loop
        self._log = log
        self._decided: Decided | None = decided
        self._endpoint = endpoint
        self._tokens = tokens
        self._timeout_s = timeout_s
        self._renewed = False  #: the token was
        self._waits = 0  #: so many addresses were waited for
        self._fileno = -1
        self._begin()

    def _begin(self) -> None:
        self._dial: Dial | None = None
        self._signed_before = self._tokens.signed
        try:
            self._dial = dial = Dial(self._endpoint, self._tokens.token())
        except (ConnectionFailed, CredentialsError) as error:
            # Credentials that run out hours after the cell began end no cell: they are one more reason for failures.
            failure = (
                error
                if isinstance(error, ConnectionFailed)
                else ConnectionFailed(f"there is no token: {error}", phase="authentication")
            )
            self._loop.at(0, lambda: self._fail(failure))
            return
        self._patience_s = self._timeout_s / (1 + dial.addresses_left)
        self._watch(dial)
        self._begin_waiting()

    def _watch(self, dial: Dial) -> None:
        self._fileno = dial.fileno()
        self._loop.add(self._fileno, dial.wants, self._on_ready)

    def _unwatch(self) -> None:
        if self._fileno >= 0:
            self._loop.remove(self._fileno)
            self._fileno = -1

    def _on_ready(self, _events: int) -> None:
        dial = self._dial
        assert dial is not None
        # libpq may go on with another socket of the same number, so each step registers anew.
        self._unwatch()
        try:
            done = dial.advance()
        except ConnectionFailed as error:
            if not self._renewed and may_be_stale(error, self._tokens, self._signed_before):
                self._renewed = True
                self._begin()
            else:
                self._fail(error)
            return
        if not done:
            self._watch(dial)
            return
        decided, self._decided = self._decided, None
        self._dial = None  # the time-out's timer still refers to us
        if decided is not None:
            self.phases = dial.phases
            if not self._on_trial:
                self._log.made(dial.phases)
            decided(dial.pgconn)

    def _begin_waiting(self) -> None:
        self._waits = waits = self._waits + 1  # the timer must not hold on to what is over long before it
        self._loop.at(perf_counter_ns() + int(self._patience_s * 1e9), lambda: self._time_out(waits))

    def _time_out(self, waits: int) -> None:
        """Give up an address that does not answer; go on with the next one, if there is one."""
        dial = self._dial
        if dial is None or waits != self._waits:
            return
        self._unwatch()
        try:
            dial.too_slow(self._patience_s)
        except ConnectionFailed as error:
            self._fail(error)
            return
        self._watch(dial)
        self._begin_waiting()

    def _fail(self, error: ConnectionFailed) -> None:
        self._unwatch()
        self._dial = None  # closed by itself
        decided, self._decided = self._decided, None
        if decided is not None:
            self._log.refused(error)
            decided(error)
