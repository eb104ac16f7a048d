"""The sentences of a verdict: each says what was counted, against what, and what would settle an open question."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_dsql.slo.binomial import minimum_samples, samples_to_settle
from pytest_dsql.slo.objectives import Objective

#: More requests than this are not worth asking for.
_ENOUGH = 10_000_000


def percent(share: float) -> str:
    """Return a share as a percentage with two significant digits: `0.1 %`, `12 %`."""
    if share <= 0:
        return "0 %"
    digits = max(0, 1 - math.floor(math.log10(share * 100)))
    text = f"{share * 100:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def about(count: float) -> str:
    """Return a count rounded up to two significant digits: an estimate should not look exact."""
    unit = 10 ** max(0, math.floor(math.log10(max(count, 1))) - 1)
    return f"{math.ceil(count / unit) * unit:,}"


def label(objective: Objective) -> str:
    """Return what an objective is called in a sentence: `order_create p99`."""
    if objective.metric == "failure_rate":
        return "failure rate"
    if objective.metric == "tps":
        return "success rate"
    return f"{objective.transaction} {objective.metric}"


def _counted(objective: Objective, over: int, n: int) -> str:
    what = f"took longer than {objective.limit / 1e6:g} ms" if objective.is_latency else "failed"
    if not over:
        return f"none of {n:,} requests {what}"
    return f"{over:,} of {n:,} requests ({percent(over / n)}) {what}"


def count_sentence(objective: Objective, *, over: int, n: int, failed: int, design_effect: float) -> str:
    """Say what was counted, without a full stop."""
    text = f"{label(objective)}: {_counted(objective, over, n)}, {percent(objective.allowed)} may"
    notes = []
    if objective.is_latency and failed:
        notes.append(f"{failed:,} of them failed")
    if over and design_effect > 1.05:
        notes.append(f"they come in clusters, so that {design_effect:.1f} of them say as much as one")
    return f"{text} ({'; '.join(notes)})" if notes else text


def few_committed_sentence(objective: Objective, *, committed: int, n: int) -> str:
    """Say that so few requests committed that each of them might have been over the limit without a miss."""
    few = f"only {committed:,}" if committed else "none"
    return (
        f"{label(objective)}: {few} of {n:,} requests committed, so their latency says nothing about the operation; "
        "data with which it can succeed would settle it."
    )


def more_samples_sentence(
    objective: Objective, *, over: int, n: int, unfinished: int, design_effect: float, level: float
) -> str:
    """Say what would settle an objective that has too few requests."""
    counted = _counted(objective, over, n)
    samples = f"{objective.transaction} samples" if objective.transaction else "requests"
    if unfinished:
        # They count as over for a pass, which more requests make a smaller share.
        counted += f" and {unfinished:,} more were still running when the cell ended"
        over, n = over + unfinished, n + unfinished
    if not over:
        needed = minimum_samples(objective.allowed, level)
        return (
            f"{label(objective)}: {counted}, but {needed:,} are needed before that can pass; "
            f"needs about {about(needed - n)} more {samples}."
        )
    total = samples_to_settle(over / n, objective.allowed, level, at_most_n=_ENOUGH)
    head = f"{label(objective)}: {counted} where {percent(objective.allowed)} may, which is too near to tell"
    if total is None:
        return f"{head}; not even {_ENOUGH:,} {samples} would settle it if the share stays."
    return f"{head}; needs about {about(max(1.0, total * design_effect - n))} more {samples} if the share stays."


def no_data_sentence(objective: Objective, known: Mapping[str, object]) -> str:
    """Say why an objective without a request can't pass."""
    if objective.transaction is not None and objective.transaction not in known:
        names = ", ".join(sorted(known)) or "none"
        return (
            f"{label(objective)}: the cell has no transaction of that name (it has: {names}), and no data never "
            "passes; correct the name in the Slo or add the transaction to the mix."
        )
    what = f"{objective.transaction} request" if objective.transaction else "request"
    return (
        f"{label(objective)}: no {what} was measured, and no data never passes; a longer window or more weight in the "
        "mix would settle it."
    )
