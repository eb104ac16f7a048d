"""Distributions of durations: constant, log-normal by two percentiles, or a table of quantiles. Milliseconds."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Protocol, final

_NORMAL: Final = NormalDist()
_Z99: Final = _NORMAL.inv_cdf(0.99)


class Distribution(Protocol):
    """Durations in milliseconds."""

    def sample_ms(self, rng: random.Random) -> float:
        """Draw one duration."""

    def quantile_ms(self, q: float) -> float:
        """The duration that a share `q` of all, 0 < q < 1, doesn't exceed."""


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    ms: float

    def sample_ms(self, rng: random.Random) -> float:  # noqa: ARG002 - nothing is drawn
        """Give the one duration there is."""
        return self.ms

    def quantile_ms(self, q: float) -> float:  # noqa: ARG002 - all are the same
        """Give the one duration there is."""
        return self.ms


@final
@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal: the usual shape of a service's latency. `max_ms` cuts its tail off."""

    mu: float  #: of the logarithm of milliseconds
    sigma: float
    max_ms: float = math.inf

    @classmethod
    def fitted(cls, p50_ms: float, p99_ms: float, max_ms: float = math.inf) -> LogNormal:
        """The one with these percentiles."""
        return cls(math.log(p50_ms), math.log(p99_ms / p50_ms) / _Z99, max_ms)

    def sample_ms(self, rng: random.Random) -> float:
        """Draw one duration."""
        return min(math.exp(self.mu + self.sigma * rng.gauss(0.0, 1.0)), self.max_ms)

    def quantile_ms(self, q: float) -> float:
        """The duration that a share `q` of all doesn't exceed."""
        return min(math.exp(self.mu + self.sigma * _NORMAL.inv_cdf(q)), self.max_ms)


@final
@dataclass(frozen=True, slots=True)
class Quantiles:
    """A table of quantiles, straight lines between them: for shapes that have no name, like two humps."""

    shares: tuple[float, ...]  #: ascending, from 0 to 1
    values_ms: tuple[float, ...]  #: ascending

    def sample_ms(self, rng: random.Random) -> float:
        """Draw one duration."""
        return self.quantile_ms(rng.random())

    def quantile_ms(self, q: float) -> float:
        """The duration that a share `q` of all doesn't exceed."""
        shares, values = self.shares, self.values_ms
        right = min(max(bisect_right(shares, q), 1), len(shares) - 1)
        left = right - 1
        part = (q - shares[left]) / (shares[right] - shares[left])
        return values[left] + part * (values[right] - values[left])
