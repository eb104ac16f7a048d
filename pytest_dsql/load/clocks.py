"""Two hosts' clocks: how far they are apart, and messages moved from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, final

#: Questions asked of a clock; the one that was answered fastest counts.
_QUESTIONS: Final = 10


@final
@dataclass(frozen=True, slots=True)
class ClockDifference:
    """Another host's clock, compared with ours. Nanoseconds."""

    ahead_ns: int  #: theirs minus ours
    uncertainty_ns: int  #: half of the time that the fastest question took: the difference is known no better

    def to_theirs(self, message: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a message of the controller with its times on the other host's clock."""
        match message:
            case ("start", start_ns):
                return ("start", start_ns + self.ahead_ns)
        return message

    def to_ours(self, message: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a worker's message with its times on our clock."""
        match message:
            case ("decided", stats, decided_ns):
                return ("decided", stats, decided_ns - self.ahead_ns)
        return message


def compare(theirs: Callable[[], int], ours: Callable[[], int] = perf_counter_ns) -> ClockDifference:
    """Ask another host's clock some times, and return how far it is from ours, by the fastest answer.

    The time that was read is taken to be from the middle of the question (Cristian 1989, "Probabilistic clock
    synchronization").
    """
    best: ClockDifference | None = None
    for _ in range(_QUESTIONS):
        before = ours()
        read = theirs()
        after = ours()
        found = ClockDifference(read - (before + after) // 2, (after - before + 1) // 2)
        if best is None or found.uncertainty_ns < best.uncertainty_ns:
            best = found
    assert best is not None
    return best
