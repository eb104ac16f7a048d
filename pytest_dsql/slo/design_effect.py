"""How much less a clustered sample is worth than an independent one: batch means over the exceedance flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: The requests are cut into this many batches. Few batches are long, so that a stall falls into one and is seen whole;
#: many make the estimate steadier. With fewer requests a batch still holds _BATCH_LENGTH of them, down to _FEWEST
#: batches. docs/verdicts.md lists the false-verdict rates that were simulated for these numbers.
_MOST: Final = 32
_FEWEST: Final = 8
_BATCH_LENGTH: Final = 20


def design_effect(over: Sequence[int], n: int) -> float:
    """Return the design effect of exceedances at the positions `over` (ascending) among `n` requests in order.

    It is the variance of the batch counts divided by the variance they would have if every request were over its limit
    independently of its neighbours (Kish 1965, "Survey Sampling": deff). Never below 1; 1 when nothing is over.
    """
    k = len(over)
    batches = max(_FEWEST, min(_MOST, n // _BATCH_LENGTH))
    if k == 0 or k >= n or n < batches:
        return 1.0
    counts = [0] * batches
    for position in over:
        counts[position * batches // n] += 1
    mean = k / batches
    variance = sum((count - mean) ** 2 for count in counts) / (batches - 1)
    share = k / n
    return max(1.0, variance / (n / batches * share * (1.0 - share)))


def design_effect_of_stretches(stretches: Iterable[tuple[int, int]]) -> float:
    """Return the same for requests of which only counts are known: requests and exceedances by stretch of time.

    The stretches are put together to batches of about equal numbers of requests. As these differ a little, exceedances
    are compared with what the batch's own number would give.
    """
    known = [(n, over) for n, over in stretches if n]
    total, k = sum(n for n, _ in known), sum(over for _, over in known)
    if k == 0 or k >= total:
        return 1.0
    if len(known) < _FEWEST:
        # Too few to see how they vary: at worst all requests of one had the same luck, so that it says as much as one.
        return total / len(known)
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
    return max(1.0, variance / (total / len(filled) * share * (1.0 - share)))
