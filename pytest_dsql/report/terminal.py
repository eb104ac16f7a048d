"""The summary of a run on a terminal: one line per cell, the reason where a cell did not pass, and the totals."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_dsql.load.table import GENERATOR
from pytest_dsql.report.comparisons import published_lines, ratio_lines
from pytest_dsql.results import published, side_by_side
from pytest_dsql.results.names import id_without

#: Narrower terminals wrap lines themselves.
_NARROWEST: Final = 80
_CONNECTION_KINDS: Final = ("burst", "sustained", "sequential")
_COLOURS: Final[Mapping[str, str]] = {
    "pass": "32",
    "fail": "31",
    "inconclusive": "33",
    "invalid": "35",
    "unjudged": "33",
}
_ORDER: Final = ("pass", "fail", "inconclusive", "invalid", "unjudged")


def summary_lines(results: Mapping[str, Any], width: int = 100, colour: bool = False) -> list[str]:
    """Return the table of a results file's cells, its other figures and the totals, as lines without line ends.

    Latencies are those of the slowest transaction of each kind, in milliseconds. `width` bounds the table, not the
    names of tests; `colour` marks the verdicts with ANSI colours.
    """
    width = max(width, _NARROWEST)
    cells: Sequence[Mapping[str, Any]] = results["cells"]
    loads = [cell for cell in cells if cell["arrival"]["kind"] not in _CONNECTION_KINDS]
    connects = [cell for cell in cells if cell["arrival"]["kind"] in _CONNECTION_KINDS]
    lines: list[str] = []
    if loads:
        lines += _table(_LOAD_HEAD, [(_load_row(cell), cell) for cell in loads], width, colour)
    if connects:
        lines += [""] if lines else []
        lines += _table(_CONNECT_HEAD, [(_connect_row(cell), cell) for cell in connects], width, colour)
    experiments: Mapping[str, Mapping[str, Any]] = results["experiments"]
    plain = {name: figures for name, figures in experiments.items() if name not in _TABLES}
    if plain:
        lines += [""] if lines else []
        for name, figures in plain.items():
            lines += textwrap.wrap(f"{name}: {_figures(figures)}", width, subsequent_indent="    ")
    for name, table in _TABLES.items():
        if name in experiments:
            lines += ["", *table(experiments[name], width)]
    if cells:
        lines += ["", _totals(cells, colour)]
        for one in results["run"]["resumed"]:
            count = len(one["taken"])
            lines.append(f"resumed at {one['at']}: {count} cell{'' if count == 1 else 's'} taken from before")
        for line in cost_lines(results):
            lines += textwrap.wrap(line, width, subsequent_indent="    ")
        if any(cell["simulated"] for cell in cells):
            lines += textwrap.wrap(_SIMULATED, width)
    return lines


#: Experiments that have a table of their own.
_TABLES: Final[Mapping[str, Callable[[Mapping[str, Any], int], list[str]]]] = {
    side_by_side.NAME: ratio_lines,
    published.NAME: published_lines,
}


def cost_lines(results: Mapping[str, Any]) -> list[str]:
    """Return a line for each target of which something is known: what the run has cost on it, in DPU and USD.

    A target's own total holds loading, and time between the cells; without one the cells are added up.
    """
    lines = []
    for target in results.get("targets", ()):
        costs = [one["cost"] for one in results["cells"] if one["target"] == target["name"] and one["cost"]]
        dpu, usd = target.get("cost_dpu"), target.get("cost_usd")
        if dpu is None and usd is None:
            dpu, usd = _sum(costs, "dpu"), _sum(costs, "usd")
        if dpu is None and usd is None:
            continue
        parts = [f"{dpu:,.1f} DPU"] if dpu is not None else []
        if usd is not None:
            parts.append(f"${usd:,.{2 if usd >= 1 else 4}f}")
        remarks = ["as it would be on Aurora DSQL"] if target["name"] == "local" else []
        if target.get("cost_estimated", True):
            remarks.append("estimated")
        if target.get("cost_prices"):
            remarks.append(f"prices: {target['cost_prices']}")
        if target.get("budget_usd") is not None:
            remarks.append(f"of a budget of ${target['budget_usd']:,.2f}")
        if target.get("runner_usd") is not None:
            remarks.append(f"beside it, what made the load: ${target['runner_usd']:,.4f}")
        lines.append(f"cost on {target['name']}: {', '.join(parts)} ({'; '.join(remarks)})")
    return lines


def _sum(costs: Sequence[Mapping[str, Any]], key: str) -> float | None:
    known = [one[key] for one in costs if one[key] is not None]
    return sum(known) if known else None


_SIMULATED: Final = "simulated: the engine injected latency or faults, so these figures are no database's"

_LOAD_HEAD: Final = ("cell", "conns", "tps", "reads p95/p99", "writes p95/p99", "conflicts", "verdict")
_CONNECT_HEAD: Final = ("connections", "asked", "made", "per s", "total p50/p99", "CPU each", "verdict")


def _load_row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{cell['connections']:,}",
        f"{cell['tps']['success']:,.1f}",
        _slowest(cell, "read"),
        _slowest(cell, "write"),
        f"{cell['conflict_rate']:.1%}",
    )


def _slowest(cell: Mapping[str, Any], kind: str) -> str:
    summaries = [one["latency_ms"] for one in cell["transactions"].values() if one["kind"] == kind]
    p95, p99 = (
        max((summary[name] for summary in summaries if summary[name] is not None), default=None)
        for name in ("p95", "p99")
    )
    return _pair(p95, p99)


def _connect_row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    connect = cell["connect"]
    total = connect["phases_ms"].get("total", {})
    attempted, rate, cpu_ms = connect["attempted"], connect["rate_per_s"], connect["client_cpu_ms"]
    return (
        f"{attempted:,}",
        f"{connect['succeeded']:,}",
        "-" if rate is None else f"{rate:,.1f}",
        _pair(total.get("p50"), total.get("p99")),
        "-" if cpu_ms is None or not attempted else f"{cpu_ms / attempted:.2f} ms",
    )


def _pair(first: float | None, second: float | None) -> str:
    return "-" if first is None or second is None else f"{_short(first)}/{_short(second)} ms"


def _short(value: float) -> str:
    """Three significant digits: 0.912, 9.12, 91.2, 912."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _table(
    head: Sequence[str], rows: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]], width: int, colour: bool
) -> list[str]:
    """Return the rows under the names of their tests: a test's name is long, what tells its cells apart is short."""
    figures = [list(head[1:-1]), *(list(row) for row, _cell in rows)]
    widths = [max(len(row[column]) for row in figures) for column in range(len(head) - 2)]
    labels = [_label(cell) for _row, cell in rows]
    room = width - sum(widths) - 2 * len(widths) - 2 - max(len(_verdict(cell)) for _row, cell in rows)
    longest = max(map(len, labels))
    # What tells the cells apart is worth more than an indent.
    indent = " " * max(0, min(2, room - longest))
    label_width = max(12, min(room, max(len(head[0]), len(indent) + longest)))

    def line(label: str, values: Iterable[str], verdict: str) -> str:
        cut = label if len(label) <= label_width else f"..{label[-(label_width - 2) :]}"
        aligned = "  ".join(f"{value:>{size}}" for value, size in zip(values, widths, strict=True))
        return f"{cut:<{label_width}}  {aligned}  {verdict}"

    lines = [line(head[0], head[1:-1], head[-1])]
    heading = None
    for (row, cell), label in zip(rows, labels, strict=True):
        if _test(cell) != heading:
            heading = _test(cell)
            lines.append(heading)
        outcome = cell["verdict"]["outcome"]
        lines.append(line(indent + label, row, _painted(_verdict(cell), outcome, colour)))
        if outcome != "pass":
            told = [one for one in cell["verdict"]["reasons"] if not one.startswith(GENERATOR)]
            reasons = told or ["No reason was recorded."]
            more = f" ({len(reasons) - 1} more)" if len(reasons) > 1 else ""
            lines += textwrap.wrap(
                reasons[0] + more, width, initial_indent="      ", subsequent_indent="      ", break_on_hyphens=False
            )
    return lines


#: test function, parameters, number of the cell within its test
_ID: Final = re.compile(r"(?P<test>[^\[#]*)(?P<parameters>\[.*\])?(?:#(?P<number>\d+))?", re.DOTALL)


def _test(cell: Mapping[str, Any]) -> str:
    """Return the test without its folders and parameters, and the target where it is not the engine."""
    match = _ID.match(cell["id"])
    name = (match["test"] if match else cell["id"]).rpartition("/")[2]
    told = cell["target"] == "local" or id_without(cell["id"], cell["target"]) != cell["id"]
    return name if told else f"{name} on {cell['target']}"


def _label(cell: Mapping[str, Any]) -> str:
    """Return what tells a cell from the others of its test."""
    match = _ID.match(cell["id"])
    arrival = cell["arrival"]
    parts = [arrival["kind"]]
    if arrival["kind"] in ("poisson", "constant"):  # on a schedule, what tells cells apart is the rate
        parts = [
            f"{arrival['rate']:,.1f}".removesuffix(".0") + "/s",
            *(("constant",) if arrival["kind"] == "constant" else ()),
        ]
    if match and match["parameters"]:
        parts.append(match["parameters"])
    if cell["repeat"] > 1:
        parts.append(f"run {cell['repeat']}")
    if match and match["number"]:
        parts.append(f"#{match['number']}")
    return " ".join(parts)


def _verdict(cell: Mapping[str, Any]) -> str:
    outcome = str(cell["verdict"]["outcome"])
    remarks = ["at least"] if outcome == "pass" and cell["limited_by"] in ("generator", "machine", "client") else []
    remarks += ["simulated"] if cell["simulated"] else []
    return f"{outcome} ({', '.join(remarks)})" if remarks else outcome


def _painted(text: str, outcome: str, colour: bool) -> str:
    return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if colour else text


def _figures(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {'yes' if value else 'no'}"
        if isinstance(value, bool)
        else f"{name} {value:,.3f}"
        if isinstance(value, float)
        else f"{name} {value:,}"
        if isinstance(value, int)
        else f"{name} {value}"
        for name, value in figures.items()
        if isinstance(value, str | int | float)
    )


def _totals(cells: Sequence[Mapping[str, Any]], colour: bool) -> str:
    counts = Counter(str(cell["verdict"]["outcome"]) for cell in cells)
    parts = [_painted(f"{counts[outcome]} {outcome}", outcome, colour) for outcome in _ORDER if counts[outcome]]
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}: {', '.join(parts)}"
