"""What a verdict is made from: the requests of a cell in order of intended start, and what surrounded them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol, final

from pytest_dsql.slo.design_effect import NO_CLUSTERS, Clustering, design_effect
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
class Counted:
    """Requests counted against a limit."""

    total: int
    over: int  #: over the limit or failed
    clustering: Clustering  #: of those that are over
    failed: int
    unfinished: int  #: still running and not yet over
    committed: int


NOTHING: Final = Counted(0, 0, NO_CLUSTERS, 0, 0, 0)


class RequestCounts(Protocol):
    """The requests of one transaction in a cell, as far as a verdict asks for them."""

    @property
    def name(self) -> str:
        """The transaction."""

    @property
    def kind(self) -> Kind:
        """What it does."""

    @property
    def total(self) -> int:
        """How many requests there are."""

    def counted(self, limit_ns: float) -> Counted:
        """Count what took longer than a limit."""

    def failures_of(self, all_of_them: Sequence[Any]) -> Counted:
        """Count the technical failures of all transactions of the cell, this one among them."""

    def without_waits(self) -> RequestCounts:
        """The same requests as if each had been sent when it was to start; those that were never sent are left out."""


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

    @property
    def total(self) -> int:
        """How many requests there are."""
        return len(self.counts)

    def counted(self, limit_ns: float) -> Counted:
        """Count what took longer than a limit."""
        slow = [position for position, latency in enumerate(self.latency_ns) if latency > limit_ns]
        failed = positions(self.counts, Counts.FAILED)
        over = sorted({*slow, *failed}) if failed else slow
        still_open = positions(self.counts, Counts.OPEN)
        unfinished = sum(1 for position in still_open if self.latency_ns[position] <= limit_ns)
        total = len(self.counts)
        return Counted(total, len(over), design_effect(over, total), len(failed), unfinished, self.committed)

    def failures_of(self, all_of_them: Sequence[Requests]) -> Counted:
        """Count the technical failures of all, placed in the order in which all requests were to start."""
        over = []
        for one in all_of_them:
            for position in positions(one.counts, Counts.FAILED):
                start = one.start_ns[position]
                before = sum(bisect_left(other.start_ns, start) for other in all_of_them if other is not one)
                over.append(position + before)
        total = sum(one.total for one in all_of_them)
        clustering = design_effect(sorted(over), total)
        unfinished = sum(one.counts.count(Counts.OPEN) for one in all_of_them)
        return Counted(total, len(over), clustering, len(over), unfinished, sum(one.committed for one in all_of_them))

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
    own_lag_p999_ns: int | None = None  #: of loop lag and schedule lag the longer one
    connection_wait_p999_ns: int | None = None
    offered_rate: float | None = None  #: requests per second that the schedule asked for; None in closed loop
    workers: int = 1


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a verdict on a cell looks at."""

    requests: Sequence[RequestCounts]
    duration_s: float  #: length of the window, all looks together
    successes: Sequence[int]  #: transactions committed in each of equal slices of the window
    generator: Generator
    spill: int = 0  #: by how many these are more than committed while the window was open
    #: embedded engine only: how many of its processes, on average, waited for a core because of other programs
    engine_starved: float | None = None
    gateway_starved: float = 0.0  #: of these processes the one through which every statement goes: a share of the time
    others_share: float = 0.0  #: embedded engine only: of the CPU that was used, what other programs had
    #: invariant -> violations; None when the workload has none to check; empty when nothing was checked
    invariants: Mapping[str, int] | None = None
    interrupted: str | None = None  #: why the cell ended early
    #: share of the planned window that was measured: 1 unless interrupted, None when an interrupted cell doesn't know
    complete: float | None = 1.0

    def __post_init__(self) -> None:
        if self.complete is not None and not 0 < self.complete <= 1:
            raise ValueError(f"complete must be above 0 and at most 1, not {self.complete!r}")

    @property
    def failures(self) -> Counted:
        """The technical failures of all transactions, against a limit that nothing but they exceed."""
        return self.requests[0].failures_of(self.requests) if self.requests else NOTHING

    @property
    def arrivals(self) -> int:
        """Requests that belong to the window."""
        return sum(one.total for one in self.requests)


def positions(counts: bytes, wanted: Counts) -> list[int]:
    """Return where requests stand that count as `wanted`."""
    found = []
    position = counts.find(wanted)
    while position >= 0:
        found.append(position)
        position = counts.find(wanted, position + 1)
    return found
