"""What is promised: latency limits, failure rate and throughput, validated where they are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

Kind: TypeAlias = Literal["read", "write"]
Metric: TypeAlias = Literal["p50", "p95", "p99", "p999", "failure_rate", "tps"]

#: The share of requests that may take longer than the limit: "p99 <= 200 ms" allows 1 % of them to.
ALLOWED_OVER: Final[Mapping[str, Fraction]] = {
    "p50": Fraction(1, 2),
    "p95": Fraction(5, 100),
    "p99": Fraction(1, 100),
    "p999": Fraction(1, 1000),
}

#: The finest that latencies are kept at (results/histogram), and less than any round trip.
_SHORTEST_NS: Final = 1_000


def ms(milliseconds: float) -> int:
    """Return a duration in milliseconds as whole nanoseconds, the unit of every limit."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        raise TypeError(f"ms() takes a number of milliseconds, not {milliseconds!r}")
    if not math.isfinite(milliseconds):
        raise ValueError(f"ms() takes a finite number of milliseconds, not {milliseconds!r}")
    return round(milliseconds * 1_000_000)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Limits on the latency of a transaction, in nanoseconds (write them with `ms`); None sets none.

    `p99=ms(200)` promises that at most 1 % of the requests take longer than 200 ms. Raises ValueError when no limit is
    given, when one is below a microsecond (a forgotten `ms`), or when a higher percentile has a lower limit than a
    lower one.
    """

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    p999: int | None = None

    def __post_init__(self) -> None:
        given = self.limits
        if not given:
            raise ValueError("Latency needs at least one limit, for example Latency(p99=ms(200))")
        for name, limit in given.items():
            if isinstance(limit, bool) or not isinstance(limit, int):
                raise TypeError(f"{name} must be a whole number of nanoseconds (write ms(...)), not {limit!r}")
            if limit <= 0:
                raise ValueError(f"{name} must be above 0, not {limit!r}")
            if limit < _SHORTEST_NS:
                raise ValueError(
                    f"{name}={limit} is {limit} ns, and no database answers so fast: write {name}=ms({limit})"
                )
        names = list(given)
        for lower, higher in pairwise(names):
            if given[lower] > given[higher]:
                raise ValueError(
                    f"{lower} ({given[lower] / 1e6:g} ms) must not be above {higher} ({given[higher] / 1e6:g} ms)"
                )

    @property
    def limits(self) -> dict[str, int]:
        """Percentile -> limit in nanoseconds, lowest percentile first, only those that were set."""
        every = {"p50": self.p50, "p95": self.p95, "p99": self.p99, "p999": self.p999}
        return {name: limit for name, limit in every.items() if limit is not None}


@final
@dataclass(frozen=True, slots=True)
class Objective:
    """One promise about one transaction, or about the whole cell when `transaction` is None.

    `limit` is in nanoseconds for a percentile, a share for `failure_rate`, successes per second for `tps`.
    """

    metric: Metric
    transaction: str | None
    limit: float

    @property
    def is_latency(self) -> bool:
        """Whether the limit is a duration."""
        return self.metric in ALLOWED_OVER

    @property
    def allowed(self) -> float:
        """The share of requests that may be over the limit (latency) or may fail (failure rate)."""
        return float(ALLOWED_OVER[self.metric]) if self.is_latency else self.limit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A service level objective: what a cell must meet to pass.

    `reads` and `writes` apply to each transaction of that kind on its own, not to all of them together.
    `transactions` names limits for single transactions, which then replace those of their kind. `max_failure_rate` is
    the share of all requests of the cell that may fail technically, `min_tps` the successful transactions per second
    that it must reach at least. Raises ValueError for limits that cannot be meant.
    """

    reads: Latency | None = None
    writes: Latency | None = None
    transactions: Mapping[str, Latency] = field(default_factory=dict, hash=False)
    max_failure_rate: float | None = None
    min_tps: float | None = None

    def __post_init__(self) -> None:
        for name in ("reads", "writes"):
            if not isinstance(getattr(self, name), (Latency, type(None))):
                raise TypeError(f"{name} must be a Latency, not {getattr(self, name)!r}")
        for name, latency in self.transactions.items():
            if not isinstance(name, str) or not isinstance(latency, Latency):
                raise TypeError(f"transactions must map names to Latency, not {name!r} to {latency!r}")
        # A copy, so that a dictionary the caller goes on changing can't change what was promised.
        object.__setattr__(self, "transactions", dict(self.transactions))
        for name in ("max_failure_rate", "min_tps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise TypeError(f"{name} must be a number, not {value!r}")
        if self.max_failure_rate is not None and not 0 < self.max_failure_rate < 1:
            raise ValueError(
                f"max_failure_rate must be between 0 and 1 (0.001 is 0.1 %), not {self.max_failure_rate!r}"
            )
        if self.min_tps is not None and not 0 < self.min_tps < math.inf:
            raise ValueError(f"min_tps must be a positive number, not {self.min_tps!r}")
        promises = (self.reads, self.writes, self.transactions or None, self.max_failure_rate, self.min_tps)
        if all(one is None for one in promises):
            raise ValueError("an Slo needs at least one objective, for example Slo(reads=Latency(p99=ms(100)))")

    @property
    def latencies(self) -> list[Latency]:
        """Every set of latency limits in it."""
        return [one for one in (self.reads, self.writes, *self.transactions.values()) if one is not None]

    def expand(self, transactions: Iterable[tuple[str, Kind]]) -> list[Objective]:
        """Return every objective for a cell of these transactions (name and kind), in the order they are reported.

        A transaction that `transactions` names but the cell doesn't have keeps its objectives: without data they
        can't pass.
        """
        kinds = dict(transactions)
        by_kind = {"read": self.reads, "write": self.writes}
        limits: dict[str, Latency] = {}
        for name, kind in kinds.items():
            latency = self.transactions.get(name, by_kind[kind])
            if latency is not None:
                limits[name] = latency
        for name, latency in self.transactions.items():
            limits.setdefault(name, latency)
        objectives = [
            Objective(metric, name, limit)  # type: ignore[arg-type]  # the keys of Latency.limits are metrics
            for name, latency in limits.items()
            for metric, limit in latency.limits.items()
        ]
        if self.max_failure_rate is not None:
            objectives.append(Objective("failure_rate", None, self.max_failure_rate))
        if self.min_tps is not None:
            objectives.append(Objective("tps", None, self.min_tps))
        return objectives
