"""What a cell has used of what is paid for, and who tells: plain data, and the protocol of the one who keeps the books.

Prices, meters and the budget are in the package `cost`; a cell knows only what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, final

if TYPE_CHECKING:
    from pytest_dsql.load.measurement import ConnectStats, Measurement

#: Who says so: the embedded engine's totals, CloudWatch, measured unit costs times what was done, or the clock.
Source: TypeAlias = Literal["engine", "cloudwatch", "unit costs", "time"]


@final
@dataclass(frozen=True, slots=True)
class Dpu:
    """Distributed Processing Units, in the four parts in which DSQL meters them."""

    compute: float = 0.0
    read: float = 0.0
    write: float = 0.0
    multi_region_write: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.read + self.write + self.multi_region_write

    def plus(self, other: Dpu) -> Dpu:
        """Both together."""
        return Dpu(
            self.compute + other.compute,
            self.read + other.read,
            self.write + other.write,
            self.multi_region_write + other.multi_region_write,
        )

    def times(self, factor: float) -> Dpu:
        """So many times as much."""
        return Dpu(self.compute * factor, self.read * factor, self.write * factor, self.multi_region_write * factor)


@final
@dataclass(frozen=True, slots=True)
class Cost:
    """What a cell has used from its first connection to its last answer, warm-up included."""

    began_s: float  #: seconds since the epoch
    ended_s: float
    dpu: float | None  #: None on a target that has no DPU
    parts: Dpu | None  #: None when only the sum is known
    usd: float | None  #: at list prices, without a free tier; None when a price is not known
    estimated: bool  #: False where the service's own meter covers the cell
    source: Source

    def plus(self, other: Cost) -> Cost:
        """Both, of one cell; the other one comes later."""
        return Cost(
            self.began_s,
            other.ended_s,
            None if self.dpu is None or other.dpu is None else self.dpu + other.dpu,
            None if self.parts is None or other.parts is None else self.parts.plus(other.parts),
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            self.estimated or other.estimated,
            self.source if self.source == other.source else "unit costs",
        )


@final
@dataclass(frozen=True, slots=True)
class Operations:
    """Work that is no cell's, for reckoning what it has used: single operations, and new connections."""

    attempts: float
    connections: int


#: What was done between `Books.begin` and `Books.end`; None when nobody knows.
Done: TypeAlias = "Measurement | ConnectStats | Operations | None"


class Books(Protocol):
    """Keeps the books of a target while cells run on it. Nothing is asked of closed books."""

    @property
    def shared(self) -> bool:
        """Whether all processes of a run see the same target: then their totals are the same, and don't add up."""

    def admit(self, cell: str) -> None:
        """Raise BudgetReached when no cell may begin any more."""

    def begin(self) -> object:
        """Note what was used before a cell; the answer goes to `end`."""

    def end(self, before: object, cell: str, done: Done) -> Cost | None:
        """Tell what the cell has used since; None when nobody knows. `done` is what it measured."""

    def loading(self, what: str) -> Callable[[int], None]:
        """Begin to load data, and return what is to be told of the rows that have landed, again and again.

        Both raise BudgetReached when no more may be loaded.
        """

    def learn(self, transactions: Mapping[str, Dpu]) -> None:
        """Take what transactions cost, by their names, for reckoning what cells use."""

    def close(self) -> Mapping[str, Cost]:
        """End the books, and give the cells whose cost is known better by now."""

    def facts(self) -> dict[str, Any]:
        """Give what the results file says of the target's cost as a whole."""


@final
class NoBooks:
    """For a target of which nothing is known: everything may begin, and nothing has a price."""

    shared: Final = True

    def admit(self, cell: str) -> None:
        """Let it begin."""

    def begin(self) -> object:
        """Note nothing."""
        return None

    def end(self, before: object, cell: str, done: Done) -> Cost | None:  # noqa: ARG002
        """Know nothing."""
        return None

    def loading(self, what: str) -> Callable[[int], None]:  # noqa: ARG002
        """Let everything be loaded."""
        return lambda _rows: None

    def learn(self, transactions: Mapping[str, Dpu]) -> None:
        """Need nothing."""

    def close(self) -> Mapping[str, Cost]:
        """Know nothing better."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Say nothing."""
        return {}


NO_BOOKS: Final = NoBooks()
