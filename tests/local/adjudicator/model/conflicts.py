"""Who conflicts with whom: what a transaction has touched, and the matrix.

Source: AWS user guide, "Concurrency control in Aurora DSQL", the table of conflicting operations.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeAlias, final


@final
class Mode(IntEnum):
    """How a transaction has touched something, weakest first."""

    NONE = 0
    KEY_SHARE = 1  #: FOR KEY SHARE, or a row that refers to it was written
    NON_KEY = 2  #: UPDATE of columns that are in no unique key
    STRONG = 3  #: INSERT, DELETE, UPDATE of a key column, FOR UPDATE


@final
class Verdict(Enum):
    """What the documentation says about two transactions."""

    NEITHER = "they don't conflict"
    OPEN = "the documentation leaves it open"
    CONFLICT = "they conflict"


#: A row by its primary key (or its place, in a table without one), or an entry of a unique index.
Item: TypeAlias = Hashable


def conflicting(one: Mode, other: Mode) -> bool:
    """Whether two ways to touch the same thing exclude each other."""
    if Mode.NONE in (one, other):
        return False
    if Mode.STRONG in (one, other):
        return True
    return one is Mode.NON_KEY and other is Mode.NON_KEY


@final
@dataclass(slots=True)
class Footprint:
    """What a transaction has touched: for each thing the mode that is certain, and the strongest one conceivable."""

    items: dict[Item, tuple[Mode, Mode]] = field(default_factory=dict)

    def touch(self, item: Item, mode: Mode, conceivable: Mode | None = None) -> None:
        """Note that something was touched; `conceivable` is for what the documentation doesn't decide."""
        certain, possible = self.items.get(item, (Mode.NONE, Mode.NONE))
        self.items[item] = (max(certain, mode), max(possible, mode, conceivable or mode))

    def against(self, other: Mapping[Item, tuple[Mode, Mode]]) -> Verdict:
        """Say whether two transactions conflict."""
        verdict = Verdict.NEITHER
        for item in self.items.keys() & other.keys():
            (certain, possible), (other_certain, other_possible) = self.items[item], other[item]
            if conflicting(certain, other_certain):
                return Verdict.CONFLICT
            if conflicting(possible, other_possible):
                verdict = Verdict.OPEN
        return verdict
