"""When a transaction may run again, and after which pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.connect.backoff import BACKOFF
from pytest_dsql.errors import ErrorClass
from pytest_dsql.load.measurement import Outcome


@final
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `attempts` attempts, none begun later than `deadline_s` after the intended start.

    The pause before attempt n + 1 is drawn evenly from 0 to `base_s` * 2**(n - 1): exponential backoff, full jitter.
    """

    attempts: int = 3
    deadline_s: float = 2.0
    base_s: float = 0.010

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.deadline_s < 0 or self.base_s < 0:
            raise ValueError("a retry policy needs at least one attempt, and no negative time")

    def pause_ns(self, attempts_made: int, jitter: float) -> int:
        """Return the pause after `attempts_made` attempts; `jitter` is drawn evenly from [0, 1)."""
        return int(self.base_s * 1e9 * 2 ** (attempts_made - 1) * jitter)

    def next_start_ns(self, *, attempts_made: int, intended_ns: int, now_ns: int, jitter: float) -> int | None:
        """Return when the next attempt begins, or None when there is none."""
        if attempts_made >= self.attempts:
            return None
        return self._in_time(now_ns + self.pause_ns(attempts_made, jitter), intended_ns)

    def next_connect_ns(self, *, refusals: int, intended_ns: int, now_ns: int, jitter: float) -> int | None:
        """Return when to ask for a connection again that was refused by a limit, or None when that is too late.

        A refusal is no attempt of the transaction, so it is not their number that counts but the time.
        """
        return self._in_time(now_ns + int(BACKOFF.pause_s(refusals, jitter) * 1e9), intended_ns)

    def _in_time(self, start_ns: int, intended_ns: int) -> int | None:
        return start_ns if start_ns <= intended_ns + int(self.deadline_s * 1e9) else None


#: The order workload's rule, and everybody's default.
RETRY: Final = RetryPolicy()


def is_unknown_end(error_class: ErrorClass) -> bool:
    """Tell whether nobody knows, after such an error, if a COMMIT under way has landed: the receipt must say."""
    return error_class in (ErrorClass.CONNECTION, ErrorClass.TRANSIENT)


def committed_after(attempts: int) -> Outcome:
    """Return the outcome of a request that has committed with its last attempt."""
    return Outcome.OK if attempts == 1 else Outcome.OK_RETRIED


def is_limit(refusal: ErrorClass) -> bool:
    """Tell whether a refused connection met a limit that passes: connections, their rate, a cluster that wakes up."""
    return refusal in (ErrorClass.LIMIT, ErrorClass.TRANSIENT)
