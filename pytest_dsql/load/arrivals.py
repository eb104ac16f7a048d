"""Open loop: when requests arrive, decided in advance from the seed, whatever the database does meanwhile."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, final

from pytest_dsql.load.measurement import Arrival
from pytest_dsql.transaction import stream_seed


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """One worker's share of a cell's arrivals, in order. Both arrays have the same length."""

    after_ns: array[int]  #: since the start of the cell, warm-up included
    transactions: array[int]  #: places in the mix


def schedule_of(
    arrival: Arrival, weights: Sequence[float], *, seed: int, length_s: float, worker: int, workers: int
) -> Schedule:
    """Return the arrivals of worker `worker` of `workers`, over `length_s` seconds.

    The workers deal the arrivals of the whole cell out among them, so that together they are one Poisson process (or
    one that is constant), whatever their number; and each gets every `workers`-th, which is steadier than a Poisson
    process of its own. Raises KeyError for an arrival that has no schedule.
    """
    assert arrival.rate is not None, "an open loop has a rate"
    pace = _PACERS[arrival.kind](arrival.rate, random.Random(stream_seed(seed, "arrivals", 0)))
    choose = random.Random(stream_seed(seed, "mix", 0))
    cumulated = list(accumulate(weights))
    places = range(len(weights))
    after_ns, transactions = array("q"), array("H")
    end_ns = int(length_s * 1e9)
    for number, at_ns in enumerate(pace):
        if at_ns >= end_ns:
            break
        # Drawn for every arrival, so that a request's kind does not depend on the number of workers.
        place = choose.choices(places, cum_weights=cumulated)[0] if len(cumulated) > 1 else 0
        if number % workers == worker:
            after_ns.append(at_ns)
            transactions.append(place)
    return Schedule(after_ns, transactions)


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
