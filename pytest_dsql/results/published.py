"""Published figures beside ours: which of a results file have a published counterpart, and how they differ."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pytest_dsql.results.names import id_without

#: Under which name the results' experiments have them.
NAME: Final = "published figures"
#: What the published experiments ran with, in our words.
_PLAN: Final = "full"
_SCALE: Final = "full"
_TEST: Final = re.compile(r"[^\[#]*")
_TRANSACTION: Final = re.compile(r"(?P<name>\w+) (?P<percentile>p50|p95|p99|p999)")


@cache
def published() -> Mapping[str, Any]:
    """Return the data file: `sources` by name, `series` as its head says."""
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def beside_published(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Match a results file's cells and experiments to the published series; None when none of them matches.

    Each of `figures` has `source`, `name` and `metric`, the `published` figure of `published_target` (a number, or the
    two ends of a span), `ours` of `target`, the `cell` or experiment that it is of, and `differs`: in what the two were
    not measured alike. `note` is what the publication says of its figure. `sources` holds where the figures are from.
    """
    figures = [
        figure
        for series in published()["series"]
        for ours in (_of_experiments if "experiment" in series else _of_cells)(series, results)
        for figure in _figures(series, ours, results["run"])
    ]
    if not figures:
        return None
    used = {figure["source"] for figure in figures}
    return {"sources": {name: one for name, one in published()["sources"].items() if name in used}, "figures": figures}


def _of_cells(series: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for cell in results["cells"]:
        name = _TEST.match(cell["test"])
        alike = name is not None and name[0].rpartition("/")[2] == series["test"]
        if not alike or cell["arrival"]["kind"] != series["arrival"] or cell["repeat"] != 1:
            continue
        known = {"connections": cell["connections"], "rate": cell["arrival"]["rate"]}
        if all(known[key] == value for key, value in series.get("where", {}).items()):
            yield {"values": cell, "known": known, "target": cell["target"], "cell": cell["id"]}


def _of_experiments(series: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name, figures in results["experiments"].items():
        target = str(figures.get("target", "local"))
        if name not in (series["experiment"], f"{series['experiment']} on {target}"):
            continue
        if all(figures.get(key) == value for key, value in series.get("where", {}).items()):
            yield {"values": figures, "known": figures, "target": target, "cell": name}


def _figures(series: Mapping[str, Any], ours: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = series["rows"]
    # A target of which nothing was published stands beside DSQL, or what the series is about.
    row = next((one for one in rows if one["target"] == ours["target"]), rows[0])
    differs = [
        f"{what} {here} (published: {there})"
        for what, here, there in (
            ("target", ours["target"], row["target"]),
            ("plan", run["plan"], _PLAN),
            ("scale", run.get("scale"), _SCALE),
            *((key, ours["known"].get(key), value) for key, value in series.get("noted", {}).items()),
        )
        if here is not None and here != there
    ]
    if ours["values"].get("simulated"):
        differs.append("simulated")
    condition = "".join(f", {value:g} {_WORDS[key]}" for key, value in series.get("where", {}).items())
    for metric, value in row["figures"].items():
        measured = _measured(ours["values"], metric)
        if measured is None:
            continue
        figure = {
            "source": series["source"],
            "name": f"{series['name']}{condition}",
            "metric": metric,
            "published": value,
            "published_target": row["target"],
            "ours": measured,
            "target": ours["target"],
            "cell": id_without(ours["cell"], ours["target"]),
            "differs": differs,
        }
        yield figure | ({"note": row["note"]} if "note" in row else {})


_WORDS: Final[Mapping[str, str]] = {"connections": "connections", "rate": "per s", "n": "times"}


def _measured(values: Mapping[str, Any], metric: str) -> float | int | None:
    """Return one of our figures by its metric; None where it was not measured."""
    found: Any = values
    if metric == "dpu per attempt":
        attempts = sum(one["attempts"] for one in values["transactions"].values())
        dpu = (values.get("cost") or {}).get("dpu")
        return None if dpu is None or not attempts else round(dpu / attempts, 6)
    transaction = _TRANSACTION.fullmatch(metric)
    path = (
        ("transactions", transaction["name"], "latency_ms", transaction["percentile"])
        if transaction
        else metric.split(".")
    )
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None
