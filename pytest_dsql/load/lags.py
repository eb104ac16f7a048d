"""Short times counted in classes of equal width: as large after a day as after a second."""

from __future__ import annotations

from array import array
from typing import Final, final

_CLASSES: Final = 1 << 16
_LAST: Final = _CLASSES - 1


@final
class Lags:
    """Counts in classes of 2**shift nanoseconds, 0 apart; what is longer than 65,535 of them is in the last."""

    __slots__ = ("_counts", "_max_ns", "_shift")

    def __init__(self, shift: int) -> None:
        self._shift: Final = shift
        self._counts: Final = array("Q", bytes(8 * _CLASSES))
        self._max_ns = 0

    def count(self, lag_ns: int) -> None:
        """Count one."""
        kind = -(-lag_ns >> self._shift)  # rounded up: only 0 is in the first
        self._counts[kind if kind < _LAST else _LAST] += 1  # noqa: FURB136 - a call costs more
        if lag_ns > self._max_ns:
            self._max_ns = lag_ns

    @property
    def n(self) -> int:
        """How many were counted."""
        return sum(self._counts)

    def quantile_ns(self, share: float) -> int:
        """Return the time that `share` of those counted did not exceed, at most a class too long; 0 without any."""
        total = sum(self._counts)
        rank = share * total
        passed = 0
        for kind, count in enumerate(self._counts):
            passed += count
            if count and passed >= rank:
                return min(kind << self._shift, self._max_ns) if kind < _LAST else self._max_ns
        return 0
