"""What stands beside our figures in the summary: those of other targets, and published ones."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any


def ratio_lines(figures: Mapping[str, Any], width: int) -> list[str]:
    """Return the ratios between targets, a paragraph for each cell and target, of at most `width` columns."""
    lines = [f"side by side: how many times {figures['against']}'s, with intervals of 95 %"]
    paragraphs: dict[tuple[str, str], list[str]] = {}
    for one in figures["ratios"]:
        interval = f"{_times(one['low'])} to {_times(one['high'])}"
        runs = f", {one['runs']} runs" if one["runs"] > 1 else ""
        paragraphs.setdefault((one["cell"], one["target"]), []).append(
            f"{one['metric']} {_times(one['ratio'])} ({interval}{runs})"
        )
    for (cell, target), parts in paragraphs.items():
        lines.append(f"{cell.rpartition('/')[2]} on {target}")
        lines += textwrap.wrap("; ".join(parts), width, initial_indent="  ", subsequent_indent="  ")
    return lines


def _times(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def published_lines(figures: Mapping[str, Any], width: int) -> list[str]:
    """Return our figures with the published ones in brackets, of at most `width` columns, and how they differ."""
    sources = "; ".join(
        f"{name}: {one['about']}, {one['region']}, {one['measured']}" for name, one in figures["sources"].items()
    )
    lines = textwrap.wrap(f"ours (published), from {sources}", width, subsequent_indent="    ")
    found: Sequence[Mapping[str, Any]] = figures["figures"]
    shared = [one for one in found[0]["differs"] if all(one in other["differs"] for other in found)]
    if shared:
        lines += textwrap.wrap(f"none was measured alike: {', '.join(shared)}", width, subsequent_indent="    ")
    paragraphs: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        target = (
            one["target"]
            if one["target"] == one["published_target"]
            else f"{one['target']} ({one['published_target']})"
        )
        # Both targets are named anyway.
        own = [text for text in one["differs"] if text not in shared and not text.startswith("target ")]
        remarks = "; ".join([*own, *([f"published: {one['note']}"] if "note" in one else [])])
        key = (f"{one['source']} {one['name']}, {target}", one["cell"], remarks)
        paragraphs.setdefault(key, []).append(f"{one['metric']} {_number(one['ours'])} ({_span(one['published'])})")
    for (head, _cell, remarks), parts in paragraphs.items():
        text = f"{head}: {', '.join(parts)}{f' [{remarks}]' if remarks else ''}"
        lines += textwrap.wrap(text, width, subsequent_indent="    ")
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _span(value: float | Sequence[float]) -> str:
    return " to ".join(map(_number, value)) if isinstance(value, list | tuple) else _number(value)  # type: ignore[arg-type]
