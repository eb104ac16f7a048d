"""What is asked of a transaction's requests in one cell, whether they were kept (`Samples`) or counted (`Digest`)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from pytest_dsql.load.buckets import coarse_edge_ns, counts_exactly
from pytest_dsql.load.digest import Digest
from pytest_dsql.load.measurement import Measurement, Outcome, Samples
from pytest_dsql.load.series import Series, series_of
from pytest_dsql.load.statistics import LatencySummary, answered, distribution
from pytest_dsql.slo.design_effect import design_effect_of_stretches
from pytest_dsql.slo.evidence import OUTCOME_COUNTS, Counted, Counts, RequestCounts, Requests
from pytest_dsql.slo.interval import interval_ranks, percentile_interval
from pytest_dsql.slo.objectives import Kind, Slo
from pytest_dsql.slo.throughput import SLICES

Part: TypeAlias = Literal["latency", "wait", "service", "backoff"]

PARTS: Final[tuple[Part, ...]] = ("latency", "wait", "service", "backoff")
COMMITTED: Final = (Outcome.OK, Outcome.OK_RETRIED)
FAILED: Final = tuple(one for one in Outcome if OUTCOME_COUNTS[one.name.lower()] is Counts.FAILED)
#: Value of `Outcome` -> value of `Counts`, for bytes.translate.
_COUNTS: Final = bytes(
    OUTCOME_COUNTS[Outcome(value).name.lower()] if value in set(Outcome) else Counts.FAILED for value in range(256)
)


def summary_of(one: Samples | Digest, part: Part) -> LatencySummary:
    """Return the order statistics of a part of the latency of answered requests."""
    if isinstance(one, Digest):
        return LatencySummary.of(getattr(one, part).distribution())
    column: array[int] = getattr(one, f"{part}_ns")
    return LatencySummary.of(distribution(answered(one, column)))


def interval_of(one: Samples | Digest, share: float) -> tuple[int | None, int | None]:
    """Return between which latencies the true percentile lies, with a confidence of 95 %; see `slo.interval`."""
    if isinstance(one, Samples):
        return percentile_interval(answered(one, one.latency_ns), share)
    latency = one.latency
    if not latency.n:
        return None, None
    estimate = latency.percentile(round(share * 1000))
    counts = (one.latencies[stretch] for stretch in one.latencies)
    effect = design_effect_of_stretches((sum(each.values()), _over(each, estimate)) for each in counts).effect
    low, high = interval_ranks(latency.n, effect, share)
    return None if low is None else latency.at_rank(low), None if high is None else latency.at_rank(high)


def attempts_of(one: Samples | Digest) -> int:
    """Return how many attempts the requests took together."""
    return one.attempts if isinstance(one, Digest) else sum(one.attempts)


def latencies_of(one: Samples | Digest) -> Iterable[tuple[int, int]]:
    """Yield the latencies of answered requests, each with how many had it."""
    if isinstance(one, Digest):
        return one.latency.edges()
    return ((latency, 1) for latency in answered(one, one.latency_ns))


def requests_of(one: Samples | Digest) -> RequestCounts:
    """Return the requests as a verdict takes them."""
    if isinstance(one, Digest):
        return DigestRequests(one)
    return Requests(
        name=one.name,
        kind=one.kind,
        start_ns=one.intended_ns,
        latency_ns=one.latency_ns,
        counts=one.outcome.tobytes().translate(_COUNTS),
        committed=one.count(*COMMITTED),
        wait_ns=one.wait_ns if any(one.wait_ns) else None,
    )


def successes_of(measured: Measurement) -> list[int]:
    """Count the committed transactions by slice of the window in which they were to start."""
    if measured.counted is not None:
        return measured.counted.successes
    bounds = [round(measured.duration_s * 1e9 * index / SLICES) for index in range(SLICES)]
    slices = [0] * SLICES
    for samples in measured.samples.values():
        edges = [0, *(bisect_left(samples.intended_ns, bound) for bound in bounds[1:]), len(samples)]
        for index in range(SLICES):
            part = samples.outcome[edges[index] : edges[index + 1]]
            slices[index] += sum(part.count(int(one)) for one in COMMITTED)
    return slices


def series_in(measured: Measurement) -> Series:
    """Return the window second by second."""
    counted = measured.counted
    return series_of(measured.samples, measured.duration_s) if counted is None else counted.series


def uncountable(slo: Slo) -> list[float]:
    """Return the latency limits of an Slo that a digest can't count exactly, in milliseconds."""
    return [limit / 1e6 for one in slo.latencies for limit in one.limits.values() if not counts_exactly(limit)]


@final
@dataclass(frozen=True, slots=True)
class DigestRequests:
    """A digest as a verdict takes it. Clusters are seen through stretches of the window."""

    digest: Digest
    waited: bool = True  #: the time that requests waited to be sent counts, and so do those that never were

    @property
    def name(self) -> str:
        """The transaction."""
        return self.digest.name

    @property
    def kind(self) -> Kind:
        """What it does."""
        return self.digest.kind

    @property
    def failed(self) -> int:
        """Technical failures."""
        return self.digest.count(*FAILED) if self.waited else self.digest.failed_sent

    @property
    def unfinished(self) -> int:
        """Requests that still ran when the cell ended."""
        return (self.digest.unfinished if self.waited else self.digest.unfinished_served).n

    @property
    def total(self) -> int:
        """How many requests there are."""
        return self.digest.latency.n + self.failed + self.unfinished

    def counted(self, limit_ns: float) -> Counted:
        """Count what took longer than a limit."""
        digest, waited = self.digest, self.waited
        latency, still = (digest.latency, digest.unfinished) if waited else (digest.served, digest.unfinished_served)
        late = still.over(limit_ns)
        # By stretch, failures and cancelled requests include those that were never sent: the effect is the larger for
        # it, if at all.
        clustering = design_effect_of_stretches(self._by_stretch(limit_ns))
        over = latency.over(limit_ns) + late + self.failed
        return Counted(self.total, over, clustering, self.failed, still.n - late, digest.count(*COMMITTED))

    def _by_stretch(self, limit_ns: float) -> Iterable[tuple[int, int]]:
        digest = self.digest
        # In closed loop nothing waits, and only the latencies are there.
        stretches = digest.latencies if self.waited or not digest.wait.max_ns else digest.servings
        for stretch in sorted({*stretches, *digest.pending, *digest.failures}):
            failed = digest.failures.get(stretch, 0)
            answered, pending = stretches[stretch], digest.pending[stretch]
            over = _over(answered, limit_ns) + _over(pending, limit_ns)
            yield sum(answered.values()) + sum(pending.values()) + failed, over + failed

    def failures_of(self, all_of_them: Iterable[DigestRequests]) -> Counted:
        """Count the technical failures of all transactions of the cell, this one among them."""
        several = list(all_of_them)
        by_stretch: dict[int, list[int]] = {}
        for one in several:
            digest = one.digest
            for stretch in {*digest.latencies, *digest.failures}:
                counts = by_stretch.setdefault(stretch, [0, 0])
                failed = digest.failures.get(stretch, 0)
                counts[0] += sum(digest.latencies[stretch].values()) + failed
                counts[1] += failed
        clustering = design_effect_of_stretches((n, over) for _, (n, over) in sorted(by_stretch.items()))
        failed = sum(one.failed for one in several)
        return Counted(
            sum(one.total for one in several),
            failed,
            clustering,
            failed,
            sum(one.unfinished for one in several),
            sum(one.digest.count(*COMMITTED) for one in several),
        )

    def without_waits(self) -> DigestRequests:
        """The same requests as if each had been sent when it was to start; those that were never sent are left out."""
        return DigestRequests(self.digest, waited=False) if self.digest.wait.max_ns or self.failed else self


def _over(counts: Mapping[int, int], limit_ns: float) -> int:
    """Count what is over a limit by buckets of three digits."""
    return sum(count for bucket, count in counts.items() if coarse_edge_ns(bucket) > limit_ns)
