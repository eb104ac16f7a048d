"""How much less a clustered sample is worth than an independent one: batch means over the exceedance flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

#: The requests are cut into this many batches. Few batches are long, so that a stall falls into one and is seen whole;
#: many make the estimate steadier. With fewer requests a batch still holds _BATCH_LENGTH of them, down to _FEWEST
#: batches. docs/verdicts.md lists the false-verdict rates that were simulated for these numbers.
_MOST: Final = 32
_FEWEST: Final = 8
_BATCH_LENGTH: Final = 20
#: Batches of fewer requests are shorter than most clusters.
_SHORT: Final = 5
#: With exceedances in fewer batches than this, how long their clusters are is hardly known.
_KNOWN: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Clustering:
    """By how much exceedances come in clusters."""

    effect: float = 1.0  #: the design effect, as estimated
    #: what a pass is judged by: stalls of different lengths are longer than the few that were seen, more often than not
    cautious: float = 1.0


#: Exceedances that tell as much as so many independent ones.
NO_CLUSTERS: Final = Clustering()


def _clustering(effect: float, batches: int) -> Clustering:
    """Return the clustering, known from exceedances in so many batches.

    The estimate is the mean size of a cluster, weighted by size. Few clusters of unequal sizes seldom have one of the
    largest among them, so a cell that met short stalls only would count them for more than they say. What the estimate
    has above 1 is therefore doubled where it comes from up to eight batches, and less and less changed with more.
    """
    effect = max(1.0, effect)
    return Clustering(effect, effect + (effect - 1.0) * min(1.0, _KNOWN / batches))


def design_effect(over: Sequence[int], n: int) -> Clustering:
    """Return the design effect of exceedances at the positions `over` (ascending) among `n` requests in order.

    It is the variance of the batch counts divided by the variance they would have if every request were over its limit
    independently of its neighbours (Kish 1965, "Survey Sampling": deff). Never below 1; 1 when nothing is over. Where
    batches are shorter than clusters, it is at least how many times as many runs of exceedances independent ones would
    make (Wald and Wolfowitz 1940: k (n - k + 1) / n).
    """
    k = len(over)
    batches = max(_FEWEST, min(_MOST, n // _BATCH_LENGTH))
    if k == 0 or k >= n:
        return NO_CLUSTERS
    by_runs = 1.0
    if n < _FEWEST * _SHORT:
        runs = 1 + sum(1 for one, other in pairwise(over) if other > one + 1)
        by_runs = k * (n - k + 1) / n / runs
    counts = [0] * batches
    for position in over:
        counts[position * batches // n] += 1
    mean = k / batches
    variance = sum((count - mean) ** 2 for count in counts) / (batches - 1)
    share = k / n
    by_batches = variance / (n / batches * share * (1.0 - share)) if n >= batches else 1.0
    return _clustering(max(by_runs, by_batches), sum(map(bool, counts)))


def design_effect_of_stretches(stretches: Iterable[tuple[int, int]]) -> Clustering:
    """Return the same for requests of which only counts are known: requests and exceedances by stretch of time.

    The stretches are put together to batches of about equal numbers of requests. As these differ a little, exceedances
    are compared with what the batch's own number would give.
    """
    known = [(n, over) for n, over in stretches if n]
    total, k = sum(n for n, _ in known), sum(over for _, over in known)
    if k == 0 or k >= total:
        return NO_CLUSTERS
    if len(known) < _FEWEST:
        # Too few to see how they vary: at worst all requests of one had the same luck, so that it says as much as one.
        return Clustering(total / len(known), total / len(known))
    most = max(_FEWEST, min(_MOST, total // _BATCH_LENGTH, len(known)))
    batches = [[0, 0] for _ in range(most)]
    before = 0
    for n, over in known:
        batch = batches[min(most - 1, (2 * before + n) * most // (2 * total))]
        batch[0] += n
        batch[1] += over
        before += n
    filled = [(n, over) for n, over in batches if n]
    share = k / total
    variance = sum((over - n * share) ** 2 for n, over in filled) / (len(filled) - 1)
    effect = variance / (total / len(filled) * share * (1.0 - share))
    return _clustering(effect, sum(1 for _, over in filled if over))
