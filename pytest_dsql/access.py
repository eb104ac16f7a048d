"""Which keys requests touch: evenly, mostly a hot set, or by Zipf's law.

An access pattern turns `n` keys into a function that draws one of them. Frequent keys are strewn over the range, so
that what is hot is a matter of single rows, not of neighbours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

if TYPE_CHECKING:
    from random import Random

#: Draws a key from 0 to n - 1.
Pick: TypeAlias = Callable[[int], int]


class Access(Protocol):
    """How keys are drawn."""

    def picker(self, rng: Random) -> Pick:
        """Return a function that draws keys with the request's random numbers."""

    def describe(self) -> str:
        """Return a few words for tables and files."""


@final
@dataclass(frozen=True, slots=True)
class Uniform:
    """Every key alike."""

    def picker(self, rng: Random) -> Pick:
        """Return the generator's own method: nothing comes between."""
        return rng.randrange

    def describe(self) -> str:
        """Return a few words for tables and files."""
        return "uniform"


@final
@dataclass(frozen=True, slots=True)
class HotSet:
    """A share of the requests goes to a share of the keys, evenly within it; the others to the other keys."""

    requests: float = 0.8
    keys: float = 0.01

    def __post_init__(self) -> None:
        if not (0 < self.requests < 1 and 0 < self.keys < 1):
            raise ValueError("a hot set takes shares between 0 and 1")

    def picker(self, rng: Random) -> Pick:
        """Return a function that draws keys with the request's random numbers."""
        requests, keys = self.requests, self.keys

        def pick(n: int) -> int:
            hot = max(1, round(n * keys))
            if hot >= n:
                return rng.randrange(n)
            rank = rng.randrange(hot) if rng.random() < requests else hot + rng.randrange(n - hot)
            return _strewn(rank, n)

        return pick

    def describe(self) -> str:
        """Return a few words for tables and files."""
        return f"hot set ({self.requests:.0%} of requests on {self.keys:.0%} of keys)"


@final
@dataclass(frozen=True, slots=True)
class Zipf:
    """The k-th most frequent key is drawn in proportion to k to the power of minus `exponent`.

    0.99 is the exponent of YCSB (Cooper et al. 2010), near what web requests show.
    """

    exponent: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.exponent < 10:
            raise ValueError(f"Zipf's exponent is above 0 and below 10, not {self.exponent!r}")

    def picker(self, rng: Random) -> Pick:
        """Return a function that draws keys with the request's random numbers."""
        samplers: dict[int, _ZipfSampler] = {}
        exponent = self.exponent

        def pick(n: int) -> int:
            sampler = samplers.get(n)
            if sampler is None:
                sampler = samplers[n] = _ZipfSampler(n, exponent)
            return _strewn(sampler.rank(rng) - 1, n)

        return pick

    def describe(self) -> str:
        """Return a few words for tables and files."""
        return f"zipf {self.exponent:g}"


UNIFORM: Final = Uniform()
HOT: Final = HotSet()
ZIPF: Final = Zipf()


def _strewn(rank: int, n: int) -> int:
    return rank * _stride(n) % n


@functools.lru_cache(maxsize=256)
def _stride(n: int) -> int:
    """Return a step through n keys that meets each of them once, and puts successive ones far apart.

    Any step without a common divisor with n does the first; near the golden section of n, also the second.
    """
    step = max(1, round(n * 0.6180339887))
    while math.gcd(step, n) != 1:
        step += 1
    return step


@final
class _ZipfSampler:
    """Ranks from 1 to n by Zipf's law, in constant time whatever n.

    Rejection-inversion: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
    distributions", ACM TOMACS 6 (1996). The density k ** -s is covered by its integral, which can be inverted; a rank
    is taken at once where it lies so near the inverse that it can't be rejected, which is nearly always.
    """

    __slots__ = ("_acceptable", "_from", "_n", "_s", "_to")

    def __init__(self, n: int, exponent: float) -> None:
        self._n = n
        self._s = exponent
        self._from = self._integral(1.5) - 1.0
        self._to = self._integral(n + 0.5)
        self._acceptable = 2.0 - self._inverse(self._integral(2.5) - 2.0**-exponent)

    def rank(self, rng: Random) -> int:
        """Draw a rank."""
        while True:
            area = self._to + rng.random() * (self._from - self._to)
            x = self._inverse(area)
            rank = min(max(int(x + 0.5), 1), self._n)
            if rank - x <= self._acceptable or area >= self._integral(rank + 0.5) - rank**-self._s:
                return rank

    def _integral(self, x: float) -> float:
        """The integral of t ** -s from 1 to x."""
        power = 1.0 - self._s
        return math.log(x) if abs(power) < 1e-9 else math.expm1(power * math.log(x)) / power

    def _inverse(self, area: float) -> float:
        power = 1.0 - self._s
        return math.exp(area) if abs(power) < 1e-9 else math.exp(math.log1p(max(area * power, -1.0 + 1e-15)) / power)
