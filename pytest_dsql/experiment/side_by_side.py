"""The same cells on several targets: in turn, so that all of them meet the same hour, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.experiment.capacity import Capacity, reference_rate
from pytest_dsql.experiment.repeats import Repeats

if TYPE_CHECKING:
    from pytest_dsql.experiment.cells import Load
    from pytest_dsql.load.cell import Cell
    from pytest_dsql.slo.objectives import Slo
    from pytest_dsql.transaction import Mix


@final
class SideBySide(Mapping[str, "Load"]):
    """What measures on each target, by the target's name. With one target it does what its `Load` does.

    Ratios between the targets are in the results file (`experiments`, "side by side") and in the summary.
    """

    def __init__(self, loads: Mapping[str, Load]) -> None:
        self._loads: Final = dict(loads)
        self._turn = 0
        if not self._loads:
            raise ValueError("no target, and no data never passes")

    def __getitem__(self, target: str) -> Load:
        return self._loads[target]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def __len__(self) -> int:
        return len(self._loads)

    def load(self, workload: Any) -> None:
        """Have every target hold the data of a workload (`dsql_orders` does that for one).

        Raises BudgetReached when the budget is used up meanwhile.
        """
        for load in self._loads.values():
            landed = load.books.loading(f"the {type(workload).__name__.lower()} data on {load.target}")
            with load.exclusive():
                workload.load(
                    load.connect, dialect=load.endpoint.dialect, progress=lambda done, landed=landed: landed(done.rows)
                )

    def measure(self, cell: Callable[[Load], Cell]) -> dict[str, Cell]:
        """Run `cell` once on each target, and return what they measured by target.

        Each time another target begins: what changes while they are measured hits all of them alike.
        """
        measured = {target: cell(self._loads[target]) for target in self._order()}
        return {target: measured[target] for target in self._loads}

    def repeat(self, times: int, cell: Callable[[Load], Cell]) -> dict[str, Repeats]:
        """Run `cell` so many times on each target, all targets once before any twice; the runs by target."""
        runs: dict[str, list[Cell]] = {target: [] for target in self._loads}
        for number in range(1, times + 1):
            for target in self._order():
                load = self._loads[target]
                runs[target].append(load.run(number, lambda load=load: cell(load)))  # type: ignore[misc]
        return {target: Repeats(cells) for target, cells in runs.items()}

    def explore(
        self, mix: Mix, slo: Slo, connections: Sequence[int], **how: Any
    ) -> dict[str, tuple[float | None, dict[int, Cell]]]:
        """Closed loop with each number of connections; the highest success TPS that meets `slo`, and the cells.

        None where no cell does. That is what the published experiment explored before it chose its common rate.
        """
        cells: dict[str, dict[int, Cell]] = {target: {} for target in self._loads}
        for count in connections:
            measured = self.measure(lambda load, count=count: load.closed(mix, connections=count, **how))  # type: ignore[misc]
            for target, cell in measured.items():
                cells[target][count] = cell
        return {
            target: (
                max((cell.tps for cell in several.values() if cell.verdict(slo).outcome == "pass"), default=None),
                several,
            )
            for target, several in cells.items()
        }

    def capacity(self, mix: Mix, slo: Slo, **how: Any) -> tuple[float | None, dict[str, Capacity]]:
        """Search for each target's capacity as `Load.capacity` does; Qref, the lowest of them, and each.

        Qref is None when one of the targets met `slo` at no rate.
        """
        found = {target: load.capacity(mix, slo, **how) for target, load in self._loads.items()}
        return reference_rate(found.values()), found

    def raise_if_void(self) -> None:
        """Raise SloMissed for a cell that violated an invariant, on whichever target."""
        __tracebackhide__ = True
        for load in self._loads.values():
            load.raise_if_void()

    def _order(self) -> list[str]:
        names = list(self._loads)
        first = self._turn % len(names)
        self._turn += 1
        return names[first:] + names[:first]
