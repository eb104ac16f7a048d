"""How many connections a cluster takes: so many at once, so many new ones per second, none while it sleeps.

The limits and texts: AWS user guide, "Cluster quotas and database limits in Amazon Aurora DSQL" and "Troubleshooting
issues in Aurora DSQL". In which order DSQL asks is not on record. Here a connection is counted when everything else
about it is in order, its token above all: nobody without one can use up a cluster's rate, and a refused connection
uses up nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import final

from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.limits import Limits


@final
class NotTaken(Enum):
    """Why a cluster doesn't take a connection: SQLSTATE and text."""

    #: Its SQLSTATE is not on record; this is the one of DSQL's other refusals with this beginning.
    WAKING = ("08006", "unable to accept connection, waking up cluster, please retry later")
    RATE = ("53400", "Unable to accept connection, rate exceeded.")
    OPEN = ("53300", "Unable to accept connection, too many open connections.")


@final
class Quotas:
    """Counts the connections of one cluster. New ones take from a bucket that is refilled steadily."""

    __slots__ = ("_asleep", "_awake_at", "_clock", "_counted_at", "_left", "open")

    def __init__(self, clock: EngineClock, limits: Limits, *, asleep: bool) -> None:
        self._clock = clock
        self.open = 0  #: connections that were taken and are not closed
        self._left = float(limits.connect_burst)
        self._counted_at = clock.now()
        self._asleep = asleep
        self._awake_at: float | None = None  #: when the cluster will be awake; None: nobody has tried to wake it

    def take(self, limits: Limits) -> NotTaken | None:
        """Count a connection that is to be opened, or say why it can't be."""
        now = self._clock.now()
        if self._asleep:
            if self._awake_at is None:
                self._awake_at = now + limits.wake_s
            if now < self._awake_at:
                return NotTaken.WAKING
            self._asleep = False
        if self.open >= limits.connections:
            return NotTaken.OPEN
        refilled = max(0.0, now - self._counted_at) * limits.connect_rate_per_s
        self._left = min(float(limits.connect_burst), self._left + refilled)
        self._counted_at = now
        if self._left < 1.0:
            return NotTaken.RATE
        self._left -= 1.0
        self.open += 1
        return None

    def closed(self) -> None:
        """Count a connection that is closed."""
        self.open -= 1

    def fill(self, limits: Limits) -> None:
        """Fill the bucket of new connections."""
        self._left = float(limits.connect_burst)
        self._counted_at = self._clock.now()

    def sleep(self, *, asleep: bool = True) -> None:
        """Put the cluster to sleep (INACTIVE), as DSQL does with one that is idle for long; or wake it at once."""
        self._asleep = asleep
        self._awake_at = None
