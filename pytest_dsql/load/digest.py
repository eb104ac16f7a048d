"""Requests counted as they come instead of kept: as large after a day as after a minute, and at any rate.

What a verdict needs is counted: durations by bucket over the whole window, and by stretches of it, so that clusters of
slow requests can be told. Nothing refers to a single request any more.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from operator import add, sub
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.load.buckets import Histogram, buckets_of, coarse
from pytest_dsql.load.measurement import Kind, Outcome
from pytest_dsql.load.recorder import Batch, Clean, spilled
from pytest_dsql.load.series import MOST_POINTS, Series, SeriesMaker
from pytest_dsql.load.stretches import Stretches
from pytest_dsql.slo.throughput import SLICES
from pytest_dsql.transaction import Transaction

if TYPE_CHECKING:
    from pytest_dsql.load.plan import CellPlan

#: Stretches into which the window is cut: ten for each batch of the design effect, and a whole number for each
#: slice in which a rate is judged.
_STRETCHES: Final = 16 * SLICES
_HISTOGRAMS: Final = ("latency", "wait", "service", "backoff", "served", "unfinished", "unfinished_served")
_ANSWERED: Final = frozenset({Outcome.OK, Outcome.OK_RETRIED, Outcome.REJECTED})
_COMMITTED: Final = frozenset({Outcome.OK, Outcome.OK_RETRIED})


@final
@dataclass(slots=True)
class Digest:
    """The requests of one transaction in one cell, counted. See `Samples`, whose part it plays."""

    name: str
    kind: Kind
    outcomes: list[int] = field(default_factory=lambda: [0] * len(Outcome))  #: by `Outcome`
    attempts: int = 0
    #: of answered requests, as `Samples` has them: latency = wait + service + backoff
    latency: Histogram = field(default_factory=Histogram)
    wait: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    backoff: Histogram = field(default_factory=Histogram)
    #: of answered requests without their wait; of others that were sent, how long they had been under way
    served: Histogram = field(default_factory=Histogram)
    failed_sent: int = 0  #: failed requests that were sent
    unfinished: Histogram = field(default_factory=Histogram)  #: how long cancelled requests had taken
    unfinished_served: Histogram = field(default_factory=Histogram)  #: those of them that were sent, without their wait
    pending: Stretches = field(default_factory=Stretches)  #: cancelled requests by stretch, by how long they had taken
    latencies: Stretches = field(default_factory=Stretches)  #: answered requests by stretch of the window
    servings: Stretches = field(default_factory=Stretches)  #: likewise, without their wait
    failures: dict[int, int] = field(default_factory=dict)  #: failed requests by stretch
    errors: dict[str, int] = field(default_factory=dict)  #: SQLSTATE (or "connection") -> failed attempts
    messages: dict[str, str] = field(default_factory=dict)  #: SQLSTATE -> one masked message, for the report

    def __len__(self) -> int:
        return sum(self.outcomes)

    def count(self, *outcomes: Outcome) -> int:
        """Return how many requests ended in one of `outcomes`."""
        return sum(self.outcomes[one] for one in outcomes)

    @property
    def stretches(self) -> int:
        """How many stretches have been begun."""
        return 1 + max((*self.latencies, *self.servings, *self.pending, *self.failures), default=-1)

    def include(self, other: Digest, after: int = 0) -> None:
        """Count what another has counted, its stretches moved behind the first `after`."""
        self.outcomes = list(map(add, self.outcomes, other.outcomes))
        self.attempts += other.attempts
        self.failed_sent += other.failed_sent
        for name in _HISTOGRAMS:
            getattr(self, name).include(getattr(other, name))
        self.latencies.include(other.latencies, after)
        self.servings.include(other.servings, after)
        self.pending.include(other.pending, after)
        for stretch, count in other.failures.items():
            self.failures[after + stretch] = self.failures.get(after + stretch, 0) + count
        for key, count in other.errors.items():
            self.errors[key] = self.errors.get(key, 0) + count
        self.messages = other.messages | self.messages


@final
@dataclass(slots=True)
class CountedCell:
    """What a cell has in place of samples whose requests were only counted."""

    digests: dict[str, Digest]  #: by transaction
    series: Series
    successes: list[int]  #: committed transactions by equal slices of the window, for a verdict on their rate


@final
class Condenser:
    """Takes the batches of all workers and keeps counts of them: what `Tallies` does by keeping every request."""

    def __init__(
        self,
        transactions: Sequence[Transaction],
        *,
        window_start_ns: int,
        window_end_ns: int,
        most_points: int = MOST_POINTS,
    ) -> None:
        count = len(transactions)
        self.names: Final = [one.name for one in transactions]
        self.committed: Final = [0] * count
        self.ambiguous: Final = [0] * count
        self.outcomes: Final = [0] * len(Outcome)
        self.errors: Final[dict[str, int]] = {}
        self.spill = 0  #: see `Measurement.spill`
        self._successes: Final = [0] * _STRETCHES  #: committed, by stretch
        self._digests: Final = [Digest(one.name, one.kind) for one in transactions]
        self._window: Final = (window_start_ns, window_end_ns)
        length_ns = max(1, window_end_ns - window_start_ns)
        self._length_ns: Final = length_ns
        self._series: Final = SeriesMaker(length_ns, most_points)

    @classmethod
    def of(cls, plan: CellPlan, start_ns: int) -> Condenser:
        """Return an empty one for a cell that starts at `start_ns`, by the clock of the workers it will count for."""
        opens_ns = start_ns + int(plan.warmup_s * 1e9)
        return cls(plan.mix.transactions, window_start_ns=opens_ns, window_end_ns=opens_ns + int(plan.window_s * 1e9))

    def add(self, batch: Batch) -> None:
        """Count one worker's batch."""
        for outcome, count in enumerate(batch.outcomes):
            self.outcomes[outcome] += count
        for key, count in batch.errors.items():
            self.errors[key] = self.errors.get(key, 0) + count
        for index, (digest, clean, samples) in enumerate(zip(self._digests, batch.clean, batch.samples, strict=True)):
            self.committed[index] += batch.committed[index]
            self.ambiguous[index] += batch.ambiguous[index]
            self._add_clean(digest, clean)
            for key, count in samples.errors.items():
                digest.errors[key] = digest.errors.get(key, 0) + count
            for key, message in samples.messages.items():
                digest.messages.setdefault(key, message)
            columns = zip(
                samples.intended_ns,
                samples.latency_ns,
                samples.wait_ns,
                samples.backoff_ns,
                samples.outcome,
                samples.attempts,
                strict=True,
            )
            for start, latency, wait, backoff, outcome, attempts in columns:
                self._add_other(digest, start, latency, wait, backoff, Outcome(outcome), attempts)
            digest.latencies.pack()
            digest.servings.pack()
            digest.pending.pack()
        self._series.pack()

    def include(self, other: Condenser) -> None:
        """Count what another of the same cell has counted, by whatever clock."""
        for mine, theirs in (
            (self.committed, other.committed),
            (self.ambiguous, other.ambiguous),
            (self.outcomes, other.outcomes),
            (self._successes, other._successes),
        ):
            mine[:] = map(add, mine, theirs)
        for key, count in other.errors.items():
            self.errors[key] = self.errors.get(key, 0) + count
        for digest, more in zip(self._digests, other._digests, strict=True):
            digest.include(more)
        self._series.include(other._series)
        self.spill += other.spill

    def _add_clean(self, digest: Digest, clean: Clean) -> None:
        """Count requests that committed at their first attempt."""
        opens_ns, closes_ns = self._window
        self.spill += spilled(clean, opens_ns, closes_ns)
        starts, ends, waits = clean
        inside = [opens_ns <= start < closes_ns for start in starts]
        if not all(inside):
            starts, ends = array("q", compress(starts, inside)), array("q", compress(ends, inside))
            waits = array("q", compress(waits, inside)) if waits else waits
        count = len(starts)
        if not count:
            return
        latencies = list(map(sub, ends, starts))
        buckets = buckets_of(latencies)
        digest.outcomes[Outcome.OK] += count
        digest.attempts += count
        digest.latency.add(latencies, buckets)
        digest.backoff.add_nothing(count)
        if waits:
            served = list(map(sub, latencies, waits))
            served_buckets = buckets_of(served)
            digest.wait.add(waits)
        else:
            served, served_buckets = latencies, buckets
            digest.wait.add_nothing(count)
        digest.service.add(served, served_buckets)
        digest.served.add(served, served_buckets)
        series, length_ns, step_ns = self._series, self._length_ns, self._series.step_ns
        places = [start - opens_ns for start in starts]
        stretch_of = [place * _STRETCHES // length_ns for place in places]
        for point, many in Counter(place // step_ns for place in places).items():
            series.count(point, success=many, attempts=many)
        for stretch, many in Counter(stretch_of).items():
            self._successes[stretch] += many
        for (point, bucket), many in Counter(
            zip((place // step_ns for place in places), map(coarse, buckets), strict=True)
        ).items():
            series.answered(point, bucket, many)
        for stretches, these in ((digest.latencies, buckets), (digest.servings, served_buckets if waits else None)):
            if these is not None:
                for (stretch, bucket), many in Counter(zip(stretch_of, map(coarse, these), strict=True)).items():
                    stretches.count(stretch, bucket, many)

    def _add_other(
        self, digest: Digest, start: int, latency: int, wait: int, backoff: int, outcome: Outcome, attempts: int
    ) -> None:
        """Count one request that took another course."""
        digest.outcomes[outcome] += 1
        digest.attempts += attempts
        stretch = start * _STRETCHES // self._length_ns
        point = start // self._series.step_ns
        served = latency - wait
        if outcome in _ANSWERED:
            [bucket] = buckets_of((latency,))
            [served_bucket] = buckets_of((served,))
            digest.latency.add((latency,), (bucket,))
            digest.wait.add((wait,))
            digest.service.add((served - backoff,))
            digest.backoff.add((backoff,))
            digest.served.add((served,), (served_bucket,))
            digest.latencies.count(stretch, coarse(bucket), 1)
            digest.servings.count(stretch, coarse(served_bucket), 1)
            self._series.answered(point, coarse(bucket), 1)
        elif outcome is Outcome.CANCELLED:
            buckets = buckets_of((latency,))
            digest.unfinished.add((latency,), buckets)
            digest.pending.count(stretch, coarse(buckets[0]), 1)
            if served > 0:
                digest.unfinished_served.add((served,))
        else:
            digest.failures[stretch] = digest.failures.get(stretch, 0) + 1
            digest.failed_sent += served > 0
        self._successes[stretch] += outcome in _COMMITTED
        self.spill += outcome in _COMMITTED and start + latency > self._length_ns
        failed = outcome not in _ANSWERED and outcome is not Outcome.CANCELLED
        self._series.count(point, success=int(outcome in _COMMITTED), attempts=attempts, failures=int(failed))

    def result(self, duration_s: float) -> CountedCell:
        """Return what was counted of the window, of which so many seconds were measured."""
        return CountedCell(
            {one.name: one for one in self._digests},
            self._series.series(duration_s),
            slices_of([(self._length_ns / 1e9 / _STRETCHES, self._successes)], duration_s),
        )


def slices_of(parts: Iterable[tuple[float, Sequence[int]]], duration_s: float) -> list[int]:
    """Return counts by equal slices of a window of so many seconds.

    `parts` follow one another: each has a length in seconds and the counts of successive stretches of that length. What
    lies on a border is divided in proportion; the sum stays what it was.
    """
    slice_s = duration_s / SLICES
    found = [0.0] * SLICES
    begins = 0.0
    for length_s, counts in parts:
        for count in counts:
            ends = begins + length_s
            if count and slice_s > 0:
                for index in range(min(SLICES - 1, int(begins / slice_s)), min(SLICES - 1, int(ends / slice_s)) + 1):
                    last = index == SLICES - 1  # of a cell that was ended early, what began meanwhile as well
                    part = (ends if last else min(ends, (index + 1) * slice_s)) - max(begins, index * slice_s)
                    found[index] += count * max(0.0, part) / length_s
            begins = ends
    # Rounded one by one, half requests could add up to many that never were.
    until = [round(one) for one in accumulate(found)]
    return list(map(sub, until, [0, *until]))
