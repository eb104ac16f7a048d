"""One run of new connections: made once at a time, recorded, and kept for a run that is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_dsql.experiment.keeping import Keeper
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.measurement import ConnectStats

if TYPE_CHECKING:
    from pytest_dsql.experiment.cells import Load


def measure_connections(
    load: Load,
    identity: str,
    kind: str,
    n: int,
    workers: int,
    run: Callable[[], ConnectStats],
    asked_per_s: float | None,
) -> Connections:
    """Have `run` ask for `n` connections, and return what `load` has recorded of them under that id."""
    about = {**load.about, "kind": kind, "connections": n, "workers": workers, "rate": asked_per_s}
    keeper = Keeper(load.kept, identity, about)
    taken = keeper.take(ConnectStats)
    if taken is not None:
        stats, simulated = taken.figures, taken.simulated
    else:
        with load.exclusive():
            load.books.admit(identity)
            before = load.injections()
            used = load.books.begin()
            stats = run()
            stats.cost = load.books.end(used, identity, stats)
            simulated = load.injections() != before
    connections = Connections(
        stats,
        id=identity,
        test=load.test,
        target=load.target,
        kind=kind,
        requested=n,
        workers=workers,
        asked_per_s=asked_per_s,
        simulated=simulated,
        record=load.record,
    )
    load.record(connections)
    keeper.keep(stats, None, simulated)
    return connections
