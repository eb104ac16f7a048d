"""When a connection that was refused for the moment may be asked for again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.errors import ConnectionFailed, ErrorClass

#: DSQL's refusal of more new connections per second than its bucket holds: it fills with 100 a second (AWS user guide,
#: "Cluster quotas and database limits in Amazon Aurora DSQL").
_RATE: Final = "53400"


@final
@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: the n-th pause is drawn evenly from 0 to `base_s` * 2**(n - 1), or `cap_s`.

    Many clients that were refused together are spread over the time in which the server takes some of them.
    """

    base_s: float = 0.1
    cap_s: float = 2.0

    def pause_s(self, refusals: int, jitter: float) -> float:
        """Return the pause after so many refusals; `jitter` is drawn evenly from [0, 1)."""
        return float(min(self.cap_s, self.base_s * 2 ** min(refusals - 1, 30))) * jitter


#: Everybody's default.
BACKOFF: Final = Backoff()


def passes(failure: ConnectionFailed) -> bool:
    """Tell whether the refusal passes by itself, soon: a rate that was exceeded, a cluster that is waking up.

    Too many open connections pass when somebody closes one; whoever waits for that knows better for how long.
    """
    return failure.sqlstate == _RATE or failure.error_class is ErrorClass.TRANSIENT


@final
class Patience:
    """The pauses of one connection that is asked for until a moment of the monotonic clock."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._refusals = 0
        self._refusal: ConnectionFailed | None = None

    def pause_s(self, failure: ConnectionFailed, now: float) -> float | None:
        """Return how long to wait before asking again, None when it is of no use or too late."""
        if not passes(failure):
            return None
        self._refusal = failure
        self._refusals += 1
        pause_s = BACKOFF.pause_s(self._refusals, random.random())
        return pause_s if now + pause_s < self._until else None

    def reason(self, failure: ConnectionFailed) -> ConnectionFailed:
        """Return what to tell the user: a last attempt that had no time left says less than the refusal before it."""
        return self._refusal if self._refusal is not None and failure.sqlstate is None else failure
