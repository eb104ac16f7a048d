"""What a verdict is made from: the requests of a cell in order of intended start, and what surrounded them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, final

from pytest_dsql.slo.objectives import Kind


class Counts(IntEnum):
    """How a request counts."""

    TIMED = 0  #: over when it took longer than the limit; no failure
    FAILED = 1  #: over every limit, and a failure
    OPEN = 2  #: unfinished: over when already past the limit, otherwise left out and counted as cancelled


#: The table of docs/verdicts.md: outcome -> how it counts.
OUTCOME_COUNTS: Final[Mapping[str, Counts]] = {
    "ok": Counts.TIMED,
    "ok_retried": Counts.TIMED,
    "rejected": Counts.TIMED,
    "failed": Counts.FAILED,
    "skipped": Counts.FAILED,
    "dropped": Counts.FAILED,
    "ambiguous": Counts.FAILED,
    "cancelled": Counts.OPEN,
}


@final
@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one transaction in order of intended start. The sequences have the same length."""

    name: str
    kind: Kind
    start_ns: Sequence[int]  #: intended starts, ascending
    #: from intended start; of an unfinished request, how long it had run when it was given up
    latency_ns: Sequence[int]
    counts: bytes  #: one value of `Counts` each
    committed: int  #: how many ended in ok or ok_retried
    #: open loop: the part of the latency in which the request waited to be sent; None where none waits
    wait_ns: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not len(self.start_ns) == len(self.latency_ns) == len(self.counts):
            raise ValueError(f"the sequences of {self.name} differ in length")
        if self.wait_ns is not None and len(self.wait_ns) != len(self.counts):
            raise ValueError(f"the waits of {self.name} differ in number from its requests")

    def without_waits(self) -> Requests:
        """The same requests as if each had been sent when it was to start; those that were never sent are left out."""
        if self.wait_ns is None:
            return self
        rows = zip(self.start_ns, self.latency_ns, self.wait_ns, self.counts, strict=True)
        sent = [
            (start, latency - wait, count)
            for start, latency, wait, count in rows
            if count == Counts.TIMED or latency > wait
        ]
        return Requests(
            name=self.name,
            kind=self.kind,
            start_ns=[start for start, _, _ in sent],
            latency_ns=[latency for _, latency, _ in sent],
            counts=bytes(count for _, _, count in sent),
            committed=self.committed,
        )


@final
@dataclass(frozen=True, slots=True)
class Generator:
    """How near the generator was to its own limits; durations in nanoseconds, None where unknown."""

    cpu: float  #: share of one core, the busiest worker
    runqueue_wait: float | None = None  #: share of the window that a worker stood in the run queue
    loop_lag_p99_ns: int | None = None
    schedule_lag_p99_ns: int | None = None
    connection_wait_p99_ns: int | None = None
    offered_rate: float | None = None  #: requests per second that the schedule asked for; None in closed loop
    workers: int = 1


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a verdict on a cell looks at."""

    requests: Sequence[Requests]
    duration_s: float  #: length of the window, all looks together
    successes: Sequence[int]  #: transactions committed in each of equal slices of the window
    generator: Generator
    #: invariant -> violations; None when the workload has none to check; empty when nothing was checked
    invariants: Mapping[str, int] | None = None
    interrupted: str | None = None  #: why the cell ended early
    #: share of the planned window that was measured: 1 unless interrupted, None when an interrupted cell doesn't know
    complete: float | None = 1.0

    def __post_init__(self) -> None:
        if self.complete is not None and not 0 < self.complete <= 1:
            raise ValueError(f"complete must be above 0 and at most 1, not {self.complete!r}")

    @property
    def arrivals(self) -> int:
        """Requests that belong to the window."""
        return sum(len(one.counts) for one in self.requests)
