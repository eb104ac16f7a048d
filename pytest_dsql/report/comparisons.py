"""What stands beside our figures in the summary: those of other targets."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
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
