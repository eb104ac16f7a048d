"""How much less a clustered sample is worth than an independent one: batch means over the exceedance flags."""

from __future__ import annotations

from collections.abc import Sequence
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
