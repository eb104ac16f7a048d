"""Keeps one cell for the case that its run is interrupted, or takes it where that has happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, final

from pytest_dsql.load.measurement import ConnectStats, Measurement

if TYPE_CHECKING:
    from pytest_dsql.results.kept import Kept, KeptCells

_Figures = TypeVar("_Figures", Measurement, ConnectStats)


@final
@dataclass(slots=True)
class Keeper:
    """One cell's place among the kept ones; without a place for them it does nothing."""

    cells: KeptCells | None
    identity: str
    arguments: Mapping[str, Any]
    _kept: object = field(default=None, init=False)  #: the figures that are kept now

    def take(self, kind: type[_Figures]) -> Kept[_Figures] | None:
        """Return the cell as it was measured before the run was interrupted, None when it has to be measured."""
        if self.cells is None:
            return None
        taken = self.cells.take(self.identity, self.arguments, kind)
        self._kept = None if taken is None else taken.figures
        return taken

    def keep(self, figures: Measurement | ConnectStats, invariants: Mapping[str, int] | None, simulated: bool) -> None:
        """Keep a cell that is whole; one whose figures are kept already costs nothing."""
        from pytest_dsql.results.kept import Kept

        if self.cells is None or figures is self._kept:
            return
        if isinstance(figures, Measurement) and figures.interrupted is not None:
            return
        self.cells.keep(
            self.identity, self.arguments, Kept(figures, None if invariants is None else dict(invariants), simulated)
        )
        self._kept = figures

    def forget(self) -> None:
        """Have nobody take the cell while it is measured."""
        if self.cells is not None:
            self.cells.forget(self.identity)
            self._kept = None
