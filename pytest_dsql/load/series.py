"""The window second by second: how many succeeded and failed, and how long they took. At most some thousand points."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add
from typing import Final, final

from pytest_dsql.load.buckets import coarse_edge_ns, percentile_edge
from pytest_dsql.load.measurement import Outcome, Samples
from pytest_dsql.load.statistics import ANSWERED, percentile
from pytest_dsql.load.stretches import Stretches

#: A longer window has points of two, three, ... seconds.
MOST_POINTS: Final = 3_600
_SECOND_NS: Final = 1_000_000_000
_COMMITTED: Final = (Outcome.OK, Outcome.OK_RETRIED)
_NEITHER: Final = (*ANSWERED, Outcome.CANCELLED)  #: neither answered nor cancelled is failed


@final
@dataclass(frozen=True, slots=True)
class Series:
    """Requests by the time at which they were to start. Every column has one entry for each point.

    Latencies are those of answered requests of all transactions, in nanoseconds; None where a point has none.
    """

    step_s: int  #: between two points; the last one may be shorter
    success: list[int]  #: requests that committed
    attempts: list[int]
    failures: list[int]  #: requests that failed technically, or were never sent
    p50_ns: list[int | None]
    p99_ns: list[int | None]
    max_ns: list[int | None]

    def followed_by(self, other: Series) -> Series:
        """Return this and another window as one. Raises ValueError when their points are unlike."""
        if self.step_s != other.step_s:
            raise ValueError(f"points of {self.step_s} s can't be followed by points of {other.step_s} s")
        columns = [getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "step_s"]
        return Series(self.step_s, *columns)


def step_of(length_ns: int, most_points: int = MOST_POINTS) -> int:
    """Return the seconds from point to point of a window."""
    return max(1, -(-length_ns // (most_points * _SECOND_NS)))


def series_of(samples: Mapping[str, Samples], duration_s: float) -> Series:
    """Return the series of a window whose requests were kept, with exact percentiles."""
    length_ns = round(duration_s * 1e9)
    step_s = step_of(length_ns)
    step_ns = step_s * _SECOND_NS
    points = max(1, -(-length_ns // step_ns))
    success, attempts, failures = [0] * points, [0] * points, [0] * points
    latencies: list[array[int]] = [array("q") for _ in range(points)]
    for one in samples.values():
        rows = zip(one.intended_ns, one.latency_ns, one.outcome, one.attempts, strict=True)
        for start, latency, outcome, tried in rows:
            point = min(start // step_ns, points - 1)
            attempts[point] += tried  # of requests that were never sent: none
            if outcome in ANSWERED:
                latencies[point].append(latency)
                success[point] += outcome in _COMMITTED
            elif outcome not in _NEITHER:
                failures[point] += 1
    ordered = [sorted(one) for one in latencies]
    return Series(
        step_s,
        success,
        attempts,
        failures,
        [percentile(one, 500) if one else None for one in ordered],
        [percentile(one, 990) if one else None for one in ordered],
        [one[-1] if one else None for one in ordered],
    )


@final
class SeriesMaker:
    """Makes the series of a window whose requests are only counted: percentiles to three digits."""

    def __init__(self, length_ns: int, most_points: int) -> None:
        self.step_s: Final = step_of(length_ns, most_points)
        self.step_ns: Final = self.step_s * _SECOND_NS
        points = max(1, -(-length_ns // self.step_ns))
        self._success = array("Q", bytes(8 * points))
        self._attempts = array("Q", bytes(8 * points))
        self._failures = array("Q", bytes(8 * points))
        self._latencies = Stretches()

    def count(self, point: int, *, success: int, attempts: int, failures: int = 0) -> None:
        """Count requests of one point."""
        self._success[point] += success
        self._attempts[point] += attempts
        self._failures[point] += failures

    def answered(self, point: int, bucket: int, count: int) -> None:
        """Count answered requests of one point, by bucket of three digits."""
        self._latencies.count(point, bucket, count)

    def pack(self) -> None:
        """Keep what is older in less room."""
        self._latencies.pack()

    def include(self, other: SeriesMaker) -> None:
        """Count what another of the same window has counted."""
        for mine, theirs in (
            (self._success, other._success),
            (self._attempts, other._attempts),
            (self._failures, other._failures),
        ):
            mine[:] = array("Q", map(add, mine, theirs))
        self._latencies.include(other._latencies)

    def series(self, duration_s: float) -> Series:
        """Return the series of the window, as far as it was measured."""
        # Of a cell that was ended early a few requests may have been to start after that was decided.
        last = max((point for point, count in enumerate(self._attempts) if count), default=0)
        points = min(len(self._success), max(last + 1, -(-round(duration_s * 1e9) // self.step_ns)))
        p50: list[int | None] = []
        p99: list[int | None] = []
        longest: list[int | None] = []
        for point in range(points):
            counts = self._latencies[point]
            total = sum(counts.values())
            p50.append(coarse_edge_ns(percentile_edge(counts, total, 500)) if total else None)
            p99.append(coarse_edge_ns(percentile_edge(counts, total, 990)) if total else None)
            longest.append(coarse_edge_ns(max(counts)) if total else None)
        return Series(
            self.step_s,
            list(self._success[:points]),
            list(self._attempts[:points]),
            list(self._failures[:points]),
            p50,
            p99,
            longest,
        )
