"""Ratios between targets, from the cells of a results file: the same cell on one target over that on the first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_dsql.results.names import id_without
from pytest_dsql.slo.ratio import Estimate, Ratio, ratio, ratio_of_runs

#: Under which name the results' experiments have it.
NAME: Final = "side by side"
_PERCENTILES: Final = ("p50", "p95", "p99")
#: What two cells must have been asked alike to be compared.
_ALIKE: Final = ("arrival", "connections", "access", "max_attempts", "pipeline")


def side_by_side(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare each cell that several targets have; None when there is none.

    `against` is the first target; each of `ratios` has `cell`, `target`, `metric` (`tps`, `order_create p95`), `ratio`
    of the target's figure to the first one's, `low` and `high` of its interval of 95 %, and `runs`. Runs of a cell on
    both targets are compared pair by pair; a single run by the intervals of its own figures. Cells are the same when
    they were asked for alike, at the same rate with the same connections; void and invalid ones are left out.
    """
    order = [target["name"] for target in results.get("targets", ())]
    if len(order) < 2:
        return None
    first = order[0]
    groups: dict[tuple[str, str, int], dict[str, list[Mapping[str, Any]]]] = {}
    labels: dict[tuple[str, str, int], str] = {}
    numbers: dict[tuple[str, ...], int] = {}
    for cell in results["cells"]:
        name, target = id_without(cell["id"], cell["target"]).partition("#")[0], cell["target"]
        alike = json.dumps([cell[one] for one in _ALIKE])
        begins = cell["repeat"] == 1
        # Runs of one kind of cell follow each other; each other cell of the test begins with run 1.
        number = numbers[name, target] = numbers.get((name, target), 0) + begins
        # A search measures each target at rates of its own: only what was asked alike is compared.
        place = numbers[name, target, alike] = numbers.get((name, target, alike), 0) + begins
        group = (name, alike, place)
        if target == first:
            labels.setdefault(group, name if number == 1 else f"{name}#{number}")
        # A void cell's figures are void, and those of an invalid one are the generator's.
        if not any((cell["invariants"] or {}).values()) and cell["verdict"]["outcome"] != "invalid":
            groups.setdefault(group, {}).setdefault(target, []).append(cell)
    ratios = []
    for group, by_target in groups.items():
        below = by_target.get(first)
        for target in order[1:]:
            above = by_target.get(target)
            if above and below:
                ratios += [
                    {"cell": labels[group], "target": target, "metric": metric, **_figures(found)}
                    for metric, found in _ratios(above, below)
                ]
    return {"against": first, "ratios": ratios} if ratios else None


def _ratios(above: Sequence[Mapping[str, Any]], below: Sequence[Mapping[str, Any]]) -> list[tuple[str, Ratio]]:
    metrics = [("tps", None), *((name, one) for name in below[0]["transactions"] for one in _PERCENTILES)]
    found = []
    for name, percentile in metrics:
        pairs = [
            (one, other)
            for one, other in (
                (_estimate(a, name, percentile), _estimate(b, name, percentile)) for a, b in _pairs(above, below)
            )
            if one is not None and other is not None
        ]
        if len(pairs) > 1:
            result = ratio_of_runs([(one.value, other.value) for one, other in pairs])
        else:
            result = ratio(*pairs[0]) if pairs else None
        if result is not None:
            found.append((name if percentile is None else f"{name} {percentile}", result))
    return found


def _pairs(
    above: Sequence[Mapping[str, Any]], below: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the runs of the same number, one on each side."""
    others = {one["repeat"]: one for one in below}
    return [(one, others[one["repeat"]]) for one in above if one["repeat"] in others]


def _estimate(cell: Mapping[str, Any], name: str, percentile: str | None) -> Estimate | None:
    if percentile is None:
        tps = cell["tps"]
        return Estimate(tps["success"], tps["success_low"], tps["success_high"]) if tps["success"] else None
    transaction = cell["transactions"].get(name)
    value = transaction["latency_ms"][percentile] if transaction else None
    if transaction is None or value is None:
        return None
    interval = transaction["interval_ms"]
    return Estimate(value, interval[f"{percentile}_low"], interval[f"{percentile}_high"])


def _figures(one: Ratio) -> dict[str, float | int | None]:
    return {
        "ratio": round(one.value, 6),
        "low": None if one.low is None else round(one.low, 6),
        "high": None if one.high is None else round(one.high, 6),
        "runs": one.runs,
    }
