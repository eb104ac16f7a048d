"""Latency histograms in HdrHistogram's own exchange format, which its tools in every language read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

#: Recorded in microseconds, from 1 us to 1 h, at three significant digits: every value is off by at most 0.1 %.
UNIT_NS: Final = 1_000
LOWEST: Final = 1
HIGHEST: Final = 3_600_000_000
SIGNIFICANT_DIGITS: Final = 3


def encode(counted_ns: Iterable[tuple[int, int]]) -> str | None:
    """Return a histogram of durations, each with its count: HdrHistogram V2, compressed, in base64; None without any.

    Durations outside the range are recorded as its nearest end.
    """
    counts: Counter[int] = Counter()
    for value, count in counted_ns:
        counts[min(max(value // UNIT_NS, LOWEST), HIGHEST)] += count
    if not counts:
        return None
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(LOWEST, HIGHEST, SIGNIFICANT_DIGITS)
    for value, count in counts.items():
        histogram.record_value(value, count)
    encoded: bytes = histogram.encode()
    return encoded.decode("ascii")
