"""Durations counted by four decimal digits: limits such as 50 ms are edges, so what is over them is counted exactly.

Bucket 0 holds durations of 0, bucket 1 those up to 1 us; above that each power of ten has 9,000 buckets. A bucket holds
what is above the one before it, up to its own edge: so a duration is at most 0.1 % below the edge that stands for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from pytest_dsql.load.measurement import Distribution

_LOWEST_NS: Final = 1_000
_PER_DECADE: Final = 9_000
_DECADES: Final = 10  #: up to 10**13 ns, almost three hours; what is longer counts as that
_TOPS: Final = [_LOWEST_NS * 10 ** (decade + 1) for decade in range(_DECADES)]
_STEPS: Final[list[int]] = [10**decade for decade in range(_DECADES)]
_HIGHEST_NS: Final = _TOPS[-1]
#: A bucket of three digits holds ten of four.
_COARSER: Final = 10


def buckets_of(durations_ns: Iterable[int]) -> list[int]:
    """Return the bucket of each duration."""
    tops, steps, decade_of = _TOPS, _STEPS, bisect_left
    return [
        (1 + _PER_DECADE * (decade := decade_of(tops, one)) - (-one // steps[decade]) - _LOWEST_NS)
        if _LOWEST_NS < one <= _HIGHEST_NS
        else _at_the_ends(one)
        for one in durations_ns
    ]


def _at_the_ends(duration_ns: int) -> int:
    if duration_ns <= 0:
        return 0
    return 1 if duration_ns <= _LOWEST_NS else 1 + _DECADES * _PER_DECADE


def edge_ns(bucket: int) -> int:
    """Return the longest duration that a bucket holds."""
    if bucket < 2:
        return bucket * _LOWEST_NS
    decade, place = divmod(bucket - 2, _PER_DECADE)
    step: int = _STEPS[decade]
    return (place + 1 + _LOWEST_NS) * step


def coarse(bucket: int) -> int:
    """Return the bucket of three digits that holds a bucket of four: 65,535 at most, in order."""
    return bucket if bucket < 2 else 2 + (bucket - 2) // _COARSER


def coarse_edge_ns(bucket: int) -> int:
    """Return the longest duration that a bucket of three digits holds."""
    return edge_ns(bucket if bucket < 2 else 2 + (bucket - 2) * _COARSER + _COARSER - 1)


def percentile_edge(counts: Mapping[int, int], total: int, thousandths: int) -> int:
    """Return the bucket of a percentile by nearest rank; `counts` has `total` durations by bucket, at least one."""
    rank = -(-thousandths * total // 1000)
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= rank:
            return bucket
    raise ValueError("no values have no percentile")


@final
@dataclass(slots=True)
class Histogram:
    """Durations as counts; its size depends on how different they are, not on how many."""

    counts: dict[int, int] = field(default_factory=dict)  #: by bucket
    n: int = 0
    total_ns: int = 0  #: exact
    max_ns: int = 0  #: exact

    def __len__(self) -> int:
        return self.n

    def add(self, durations_ns: Sequence[int], buckets: Sequence[int] | None = None) -> None:
        """Count durations; `buckets` when they are known already."""
        if not durations_ns:
            return
        counts = self.counts
        for bucket, count in Counter(buckets_of(durations_ns) if buckets is None else buckets).items():
            counts[bucket] = counts.get(bucket, 0) + count
        self.n += len(durations_ns)
        self.total_ns += sum(durations_ns)
        self.max_ns = max(self.max_ns, *durations_ns)

    def add_nothing(self, count: int) -> None:
        """Count durations of 0."""
        if count:
            self.counts[0] = self.counts.get(0, 0) + count
            self.n += count

    def include(self, other: Histogram) -> None:
        """Count what another has counted."""
        counts = self.counts
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        self.n += other.n
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentile(self, thousandths: int) -> int:
        """Return a percentile by nearest rank, at most 0.1 % too long. Raises ValueError without values."""
        return min(edge_ns(percentile_edge(self.counts, self.n, thousandths)), self.max_ns)

    def at_rank(self, rank: int) -> int:
        """Return the duration that stands at a rank, from 1 to n, likewise."""
        passed = 0
        for bucket in sorted(self.counts):
            passed += self.counts[bucket]
            if passed >= rank:
                return min(edge_ns(bucket), self.max_ns)
        raise ValueError(f"there is no rank {rank} of {self.n}")

    def over(self, limit_ns: float) -> int:
        """Return how many are above a limit: exactly, when it has no more than four digits (of nanoseconds)."""
        return sum(count for bucket, count in self.counts.items() if edge_ns(bucket) > limit_ns)

    def distribution(self) -> Distribution | None:
        """Return the order statistics; mean and maximum are exact. None when nothing was counted."""
        if not self.n:
            return None
        p50, p95, p99, p999 = (self.percentile(part) for part in (500, 950, 990, 999))
        return Distribution(self.n, p50, p95, p99, p999, self.max_ns, self.total_ns / self.n)

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield durations, each standing for its bucket, and their counts, ascending."""
        for bucket in sorted(self.counts):
            yield min(edge_ns(bucket), self.max_ns), self.counts[bucket]


def counts_exactly(limit_ns: float) -> bool:
    """Tell whether what is over a limit can be counted exactly: whether it is the edge of a bucket."""
    whole = int(limit_ns)
    return whole == limit_ns and edge_ns(buckets_of([whole])[0]) == whole
