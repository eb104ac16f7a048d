"""Order statistics of raw samples: exact, by one rank rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final, final

from pytest_dsql.load.measurement import Distribution, Outcome, Samples

#: Outcomes of requests that the database answered as meant; only their durations are summarised. A failed request may
#: end soon or late for reasons of its own, so verdicts count it as over every limit and no percentile contains it.
ANSWERED: Final = (Outcome.OK, Outcome.OK_RETRIED, Outcome.REJECTED)


def percentile(ordered: Sequence[int], thousandths: int) -> int:
    """Return a percentile of values in ascending order, by nearest rank: the value at rank ceil(share * n), from 1.

    It is always a value that was measured, never between two. So "p99 <= limit" and "at most 1 % of the values are
    above the limit" are the same statement. Raises ValueError without values.
    """
    if not ordered:
        raise ValueError("no values have no percentile")
    if not 0 < thousandths <= 1000:
        raise ValueError(f"a percentile is asked for in thousandths, 1 to 1000, not {thousandths!r}")
    return ordered[-(-thousandths * len(ordered) // 1000) - 1]  # whole numbers: no rounding can move the rank


def distribution(values: Iterable[int]) -> Distribution | None:
    """Summarise durations in nanoseconds; None when there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        n=len(ordered),
        p50=percentile(ordered, 500),
        p95=percentile(ordered, 950),
        p99=percentile(ordered, 990),
        p999=percentile(ordered, 999),
        max=ordered[-1],
        mean=sum(ordered) / len(ordered),
    )


def answered(samples: Samples, values: Sequence[int]) -> list[int]:
    """Return those of `values`, one per request of `samples`, whose request was answered."""
    keep = bytes(value in ANSWERED for value in range(256))
    return list(compress(values, samples.outcome.tobytes().translate(keep)))


@final
@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Order statistics in milliseconds. Every one is NaN when there were no values, so that no comparison holds."""

    n: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    mean_ms: float

    @classmethod
    def of(cls, summary: Distribution | None) -> LatencySummary:
        """Convert from nanoseconds."""
        if summary is None:
            return cls(0, *(math.nan,) * 6)
        return cls(
            summary.n,
            summary.p50 / 1e6,
            summary.p95 / 1e6,
            summary.p99 / 1e6,
            summary.p999 / 1e6,
            summary.max / 1e6,
            summary.mean / 1e6,
        )


@final
class Summaries(Mapping[str, LatencySummary]):
    """Summaries by name, each computed when first asked for. `summaries(name)` is the same as `summaries[name]`.

    Also takes the transaction itself in place of its name. An unknown name raises KeyError with the names there are.
    """

    def __init__(self, names: Iterable[str], summarise: Callable[[str], LatencySummary]) -> None:
        self._names = tuple(names)
        self._summarise = summarise
        self._known: dict[str, LatencySummary] = {}

    def __getitem__(self, name: object) -> LatencySummary:
        key = name if isinstance(name, str) else getattr(name, "name", name)
        if key not in self._names:
            raise KeyError(f"nothing was measured under the name {key!r}; there is: {', '.join(self._names) or 'none'}")
        assert isinstance(key, str)
        if key not in self._known:
            self._known[key] = self._summarise(key)
        return self._known[key]

    def __call__(self, name: object) -> LatencySummary:
        """Return the summary of a name."""
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
