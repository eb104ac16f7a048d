"""The verdict on a cell: pass, fail, inconclusive or invalid, decided by counting, with the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypedDict, final

from pytest_dsql.slo import binomial, throughput, wording
from pytest_dsql.slo.evidence import NOTHING, Counted, Evidence
from pytest_dsql.slo.health import limits_of_the_generator, starved_engine
from pytest_dsql.slo.objectives import Metric, Objective, Slo

Decision: TypeAlias = Literal["pass", "fail", "inconclusive"]
Outcome: TypeAlias = Literal["pass", "fail", "inconclusive", "invalid"]

#: The chance, per objective and over all looks, of a pass for a system at the edge of missing it, and of a fail for
#: one at the edge of meeting it.
LEVEL: Final = 0.01
#: A cell that can be extended is judged after 1, 2 and 4 planned windows.
LOOKS: Final = 3
#: Above this share of unfinished requests they could have turned the verdict.
MOST_CANCELLED: Final = 0.001
#: A cell is not extended when even its last look would stay below this part of the requests needed.
_WITHIN_REACH: Final = 0.8
#: Other programs that used no more than this part of the CPU can't have made most requests of a closed loop late.
_LITTLE: Final = 0.1
#: Percentiles that most requests are far below.
_TAILS: Final = ("p95", "p99", "p999")


def level_of(look: int, looks: int) -> float:
    """Return the part of the level that a look may spend: half at the first, the rest halved on, all adding up to it.

    The first look gets most, because nearly every cell is decided there. Any split whose parts add up keeps the level,
    whatever made the cell stop (Bonferroni).
    """
    if not 1 <= look <= looks:
        raise ValueError(f"look must be in 1..{looks}, not {look!r}")
    return float(LEVEL * 0.5 ** min(look, looks - 1))


@final
@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """How one objective was decided. `limit` and `measured` are in the objective's unit (see `Objective`)."""

    metric: Metric
    transaction: str | None  #: None: the whole cell
    limit: float
    n: int  #: requests counted; slices of the window for `tps`
    over: int  #: requests over the limit or failed; slices below the limit for `tps`
    design_effect: float  #: n and over were divided by it; for a pass the cautious one
    level: float  #: the chance of a false verdict that this look spent
    look: int
    outcome: Decision
    unfinished: int = 0  #: requests left out because they were still running within the limit
    measured: float | None = None  #: the failure rate or the rate of successes; None for a percentile


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """What a cell says about an Slo, and why. Every reason is a sentence."""

    outcome: Outcome
    reasons: tuple[str, ...]
    objectives: tuple[ObjectiveResult, ...] = ()
    look: int = 1
    wants_samples: bool = False  #: inconclusive for want of samples only, and the looks that are left could settle it
    generator_signs: tuple[str, ...] = ()  #: why the generator was near its limit; empty when it was healthy
    engine_signs: tuple[str, ...] = ()  #: how other programs kept the embedded engine waiting; empty when they did not

    @property
    def healthy(self) -> bool:
        """Whether the generator was well away from its limits."""
        return not self.generator_signs


class _Hindered(TypedDict):
    """What surrounded a cell, as every verdict on it says."""

    generator_signs: tuple[str, ...]
    engine_signs: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class _Decided:
    result: ObjectiveResult
    sentence: str  #: what was counted, or what would settle it
    nearness: float = 0.0  #: the share over the limit by the share allowed
    blocked: bool = False  #: more samples would not help


def judge(slo: Slo, evidence: Evidence, *, look: int = 1, looks: int = 1) -> Verdict:
    """Decide whether the cell meets the objectives; see docs/verdicts.md for the arithmetic.

    `looks` is how often the cell may be judged, each time with twice the windows, and `look` which of them this is.
    The same evidence always gets the same verdict.
    """
    level = level_of(look, looks)
    objectives = slo.expand((one.name, one.kind) for one in evidence.requests)
    decided = [_decide(objective, evidence, look, looks, level) for objective in objectives]
    limits = [one.limit for one in objectives if one.is_latency]
    tightest = min(limits) if limits else None
    rare = [one.limit for one in objectives if one.metric == "p999"]
    found = limits_of_the_generator(evidence, tightest, min(rare) if rare else None)
    signs = tuple(sign.text for sign in found)
    starved = starved_engine(evidence, tightest)
    hindered: _Hindered = {"generator_signs": signs, "engine_signs": () if starved is None else (starved,)}
    results = tuple(one.result for one in decided)
    failed = [one.sentence for one in decided if one.result.outcome == "fail"]
    open_ones = [one for one in decided if one.result.outcome == "inconclusive"]
    near = [f"The generator was near its limit: {sign}." for sign in signs]
    near += [] if starved is None else [f"The embedded engine was starved: {starved}."]

    violated = _violations(evidence.invariants)
    if violated:
        return Verdict("fail", (*violated, *failed, *near), results, look, **hindered)
    if failed and found and starved is None and all(sign.of_connections for sign in found):
        alone = _fails_without_waits(objectives, evidence, look, looks, level)
        if alone:
            return Verdict("fail", (*failed, *alone, *near), results, look, **hindered)
    if failed and starved is not None and not found:
        plain = _plainly_missed(decided, evidence)
        if plain is not None:
            return Verdict("fail", (*failed, plain, *near), results, look, **hindered)
    if failed and near:
        who = "the generator was at its limit" if signs else "other programs kept the embedded engine waiting"
        first = f"An objective was missed while {who}, which says nothing about the database."
        return Verdict("invalid", (first, *near, *failed), results, look, **hindered)
    if failed:
        return Verdict("fail", tuple(failed), results, look)

    blocks = _blocks(evidence, objectives)
    reasons = [*blocks, *(one.sentence for one in open_ones)]
    if reasons:
        wants = not blocks and not any(one.blocked for one in open_ones) and look < looks
        return Verdict("inconclusive", (*reasons, *near), results, look, wants, **hindered)
    if any(sign.of_rate for sign in found):
        first = "The objectives are met, but at a lower rate than was asked for, which says nothing about that rate."
        return Verdict("invalid", (first, *near), results, look, **hindered)
    nearest = max(decided, key=lambda one: one.nearness)
    met = "The objective is met" if len(decided) == 1 else f"All {len(decided)} objectives are met; the nearest"
    at_least = []
    if near:
        who = "the generator was near its limit" if signs else "other programs kept the embedded engine waiting"
        at_least = [f"At least: {who}, so the database may do better than this."]
    return Verdict("pass", (f"{met}: {nearest.sentence}", *at_least, *near), results, look, False, **hindered)


def _plainly_missed(decided: Sequence[_Decided], evidence: Evidence) -> str | None:
    """Return why other programs can't be what a starved engine missed a limit by; None when they can.

    In closed loop they make a request at most so much longer, on the whole, as their share of the cores is. So when
    they had little and not a few requests but most took longer than a limit, it is missed without them. In open loop
    the same share may be what makes a queue grow without end.
    """
    if evidence.generator.offered_rate is not None or evidence.others_share > _LITTLE:
        return None
    for one in decided:
        result = one.result
        if result.outcome == "fail" and result.metric in _TAILS and 2 * result.over > result.n:
            return (
                f"Other programs used only {wording.percent(evidence.others_share)} of the CPU that was used, and most "
                f"requests of {result.transaction} were over its {result.metric}, which can't be their doing."
            )
    return None


def _fails_without_waits(
    objectives: Sequence[Objective], evidence: Evidence, look: int, looks: int, level: float
) -> list[str]:
    """Return what is missed even when the time in which requests waited for a connection does not count.

    Then the database is too slow for what it had in flight, and more connections would only have given it more.
    """
    served = replace(evidence, requests=[one.without_waits() for one in evidence.requests])
    decided = [_decide(objective, served, look, looks, level) for objective in objectives if objective.metric != "tps"]
    return [
        f"Without the time that requests waited for a connection, too: {one.sentence}"
        for one in decided
        if one.result.outcome == "fail"
    ]


def _violations(invariants: Mapping[str, int] | None) -> list[str]:
    return [
        f"Invariant {name} is violated ({count:,} violation{'s' if count != 1 else ''}): "
        "the cell is void whatever its latency."
        for name, count in (invariants or {}).items()
        if count
    ]


def _blocks(evidence: Evidence, objectives: Sequence[Objective]) -> list[str]:
    """Return why the cell can't pass however many requests it has."""
    blocks = []
    if evidence.interrupted is not None:
        part = "" if evidence.complete is None else f" after {wording.percent(evidence.complete)} of its window"
        why = evidence.interrupted.rstrip(".")
        blocks.append(f"The cell ended early{part} ({why}); running it again would settle it.")
    if evidence.invariants is not None and not evidence.invariants and evidence.interrupted is None:
        blocks.append("No invariant was checked, and no data never passes; the workload must check at least one.")
    if not objectives:
        blocks.append("No objective applies to any transaction of the cell, and no data never passes.")
    return blocks


def _decide(objective: Objective, evidence: Evidence, look: int, looks: int, level: float) -> _Decided:
    if objective.metric == "tps":
        return _decide_rate(objective, evidence, look, level)
    counted = _over_limit(objective, evidence) if objective.is_latency else evidence.failures
    n, k = counted.total - counted.unfinished, counted.over
    if n == 0:
        result = ObjectiveResult(
            objective.metric, objective.transaction, objective.limit, 0, 0, 1.0, level, look, "inconclusive"
        )
        sentence = wording.no_data_sentence(objective, {one.name: one for one in evidence.requests})
        return _Decided(result, sentence, blocked=True)
    effect, cautious = counted.clustering.effect, counted.clustering.cautious
    allowed = objective.allowed
    # Rounded against the verdict in question, so that a fraction of a request never decides it. A fail must hold even
    # if all that is unfinished, and all of the planned window that was not measured, would have been within the limit;
    # a pass even if all that is unfinished would have been over it.
    decision: Decision = "inconclusive"
    sentence = wording.count_sentence(objective, over=k, n=n, failed=counted.failed, design_effect=effect) + "."
    blocked = False
    planned = counted.total / evidence.complete if evidence.complete else math.inf
    if math.isfinite(planned) and binomial.fails(math.floor(k / effect), math.ceil(planned / effect), allowed, level):
        decision = "fail"
    elif counted.unfinished > counted.total * MOST_CANCELLED:
        blocked = True
        sentence = (
            f"{wording.label(objective)}: {counted.unfinished:,} of {counted.total:,} requests "
            f"({wording.percent(counted.unfinished / counted.total)}) were still running when the cell ended and count "
            f"neither way, more than {wording.percent(MOST_CANCELLED)}; fewer connections or a longer window would "
            "settle it."
        )
    elif objective.is_latency and counted.committed <= allowed * n:
        blocked = True
        sentence = wording.few_committed_sentence(objective, committed=counted.committed, n=n)
    elif binomial.passes(
        math.ceil((k + counted.unfinished) / cautious), math.floor(counted.total / cautious), allowed, level
    ):
        decision = "pass"
        effect = cautious
        sentence = wording.count_sentence(objective, over=k, n=n, failed=counted.failed, design_effect=effect) + "."
    else:
        if k + counted.unfinished < allowed * counted.total:
            effect = cautious
        sentence = wording.more_samples_sentence(
            objective, over=k, n=n, unfinished=counted.unfinished, design_effect=effect, level=level
        )
        growth = 2 ** (looks - look)
        needed = binomial.minimum_samples(allowed, level_of(looks, looks))
        blocked = n * growth < needed * _WITHIN_REACH
        if blocked and look < looks:
            sentence += (
                f" Even {growth} times as many would be too few, so the cell was not extended; more connections or a "
                "longer window would settle it."
            )
    result = ObjectiveResult(
        objective.metric,
        objective.transaction,
        objective.limit,
        n,
        k,
        effect,
        level,
        look,
        decision,
        counted.unfinished,
        None if objective.is_latency else k / n,
    )
    return _Decided(result, sentence, k / n / allowed, blocked)


def _decide_rate(objective: Objective, evidence: Evidence, look: int, level: float) -> _Decided:
    successes, duration_s = evidence.successes, evidence.duration_s
    rate = (sum(successes) - evidence.spill) / duration_s if duration_s > 0 else 0.0
    decision = throughput.judge_rate(successes, duration_s, objective.limit, level)
    margin = throughput.margin_tps(successes, duration_s, level)
    if not math.isfinite(margin):
        result = ObjectiveResult("tps", None, objective.limit, 0, 0, 1.0, level, look, "inconclusive", measured=rate)
        return _Decided(result, "success rate: no window was measured, and no data never passes.", blocked=True)
    sentence = (
        f"{wording.label(objective)}: {rate:,.1f}/s, known to within {margin:,.1f}/s, against at least "
        f"{objective.limit:,.1f}/s"
    )
    if decision == "pass" and rate - margin < objective.limit:
        # Only the rest of the queue, worked off after the window, has made up for it.
        decision = "fail" if rate + margin < objective.limit else "inconclusive"
    if decision == "inconclusive":
        sentence += ", which is too near to tell; a longer window would settle it"
    if decision == "fail" and evidence.complete != 1:
        decision = "inconclusive"  # the rest of the planned window might have made up for it
    slice_s = duration_s / len(successes) if successes else 0.0
    below = sum(1 for count in successes if count < objective.limit * slice_s)
    result = ObjectiveResult(
        "tps", None, objective.limit, len(successes), below, 1.0, level, look, decision, measured=rate
    )
    return _Decided(result, f"{sentence}.", objective.limit / rate if rate else math.inf)


def _over_limit(objective: Objective, evidence: Evidence) -> Counted:
    """Count the requests of the objective's transaction that took longer than its limit."""
    requests = next((one for one in evidence.requests if one.name == objective.transaction), None)
    return NOTHING if requests is None else requests.counted(objective.limit)
