"""Open loop: when requests arrive, decided in advance from the seed, whatever the database does meanwhile."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, final

from pytest_dsql.load.measurement import Arrival
from pytest_dsql.transaction import stream_seed


@final
class Schedule:
    """One worker's share of a cell's arrivals, in order, as far as it is written out. Both arrays have the same length.

    All of it is decided by the seed; that of a long cell is written out bit by bit, and forgotten behind the present.
    """

    __slots__ = ("_ahead_ns", "_more", "after_ns", "transactions")

    def __init__(
        self, after_ns: array[int], transactions: array[int], more: Iterator[tuple[int, int | None]] | None = None
    ) -> None:
        self.after_ns: Final = after_ns  #: since the start of the cell, warm-up included
        self.transactions: Final = transactions  #: places in the mix
        self._more = more  #: what is not written out yet; None as a transaction: another worker's
        self._ahead_ns = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.after_ns == other.after_ns and self.transactions == other.transactions

    __hash__ = None  # type: ignore[assignment]  # it grows

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come."""
        return self._more is None

    def write_out(self, until_ns: int) -> None:
        """Write out what arrives up to then, at least."""
        more = self._more
        if more is None or self._ahead_ns > until_ns:
            return
        after_ns, transactions = self.after_ns, self.transactions
        for at_ns, transaction in more:
            if transaction is not None:
                after_ns.append(at_ns)
                transactions.append(transaction)
            if at_ns > until_ns:
                self._ahead_ns = at_ns
                return
        self._more = None

    def forget(self, count: int) -> None:
        """Forget the first arrivals."""
        del self.after_ns[:count], self.transactions[:count]

    def end(self) -> None:
        """Write out no more."""
        self._more = None


def schedule_of(
    arrival: Arrival,
    weights: Sequence[float],
    *,
    seed: int,
    length_s: float,
    worker: int,
    workers: int,
    until_s: float | None = None,
) -> Schedule:
    """Return the arrivals of worker `worker` of `workers`, over `length_s` seconds; written out up to `until_s`.

    The workers deal the arrivals of the whole cell out among them, so that together they are one Poisson process (or
    one that is constant), whatever their number; and each gets every `workers`-th, which is steadier than a Poisson
    process of its own. Raises KeyError for an arrival that has no schedule.
    """
    assert arrival.rate is not None, "an open loop has a rate"
    pace = _PACERS[arrival.kind](arrival.rate, random.Random(stream_seed(seed, "arrivals", 0)))
    choose = random.Random(stream_seed(seed, "mix", 0))
    cumulated = list(accumulate(weights))
    places = range(len(weights))
    end_ns = int(length_s * 1e9)

    def arrivals() -> Iterator[tuple[int, int | None]]:
        for number, at_ns in enumerate(pace):
            if at_ns >= end_ns:
                return
            # Drawn for every arrival, so that a request's kind does not depend on the number of workers.
            place = choose.choices(places, cum_weights=cumulated)[0] if len(cumulated) > 1 else 0
            yield at_ns, place if number % workers == worker else None

    schedule = Schedule(array("q"), array("H"), arrivals())
    schedule.write_out(end_ns if until_s is None else int(until_s * 1e9))
    return schedule


def _poisson(rate: float, chance: random.Random) -> Iterator[int]:
    at_s = 0.0
    while True:
        at_s += chance.expovariate(rate)
        yield int(at_s * 1e9)


def _constant(rate: float, _chance: random.Random) -> Iterator[int]:
    number = 0
    while True:
        yield int(number / rate * 1e9)
        number += 1


_PACERS: Final[Mapping[str, Callable[[float, random.Random], Iterator[int]]]] = {
    "poisson": _poisson,
    "constant": _constant,
}

#: The kinds of arrival that have a schedule.
SCHEDULED: Final = frozenset(_PACERS)
