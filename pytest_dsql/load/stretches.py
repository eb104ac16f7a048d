"""Durations counted by stretch of a window, in little room."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

#: Stretches whose counts stay as they are; older ones are packed.
_FRESH: Final = 4


@final
@dataclass(slots=True)
class Stretches:
    """Durations by stretch of the window and bucket of three digits, packed: six bytes for each bucket."""

    fresh: dict[int, dict[int, int]] = field(default_factory=dict)
    packed: dict[int, tuple[array[int], array[int]]] = field(default_factory=dict)

    def count(self, stretch: int, bucket: int, count: int) -> None:
        """Count durations of one bucket of three digits."""
        counts = self.fresh.get(stretch)
        if counts is None:
            counts = self.fresh[stretch] = self[stretch]
            self.packed.pop(stretch, None)
        counts[bucket] = counts.get(bucket, 0) + count

    def pack(self) -> None:
        """Pack all but the latest stretches; what comes late for them unpacks them again."""
        for stretch in sorted(self.fresh)[:-_FRESH]:
            counts = self.fresh.pop(stretch)
            self.packed[stretch] = array("H", counts), array("I", counts.values())

    def include(self, other: Stretches, after: int = 0) -> None:
        """Count what another has counted, its stretches moved behind the first `after`."""
        for stretch in other:
            for bucket, count in other[stretch].items():
                self.count(after + stretch, bucket, count)
        self.pack()

    def __getitem__(self, stretch: int) -> dict[int, int]:
        """Return the counts of a stretch by bucket; empty when it has none."""
        fresh = self.fresh.get(stretch)
        if fresh is not None:
            return dict(fresh)
        packed = self.packed.get(stretch)
        return {} if packed is None else dict(zip(*packed, strict=True))

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self.fresh, *self.packed}))
