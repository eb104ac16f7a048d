"""One stretch of a cell: ids of its own, the load, what happens beside it, and the check of the data it left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, final

from pytest_dsql.access import UNIFORM, Access
from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.violations import whole_violations
from pytest_dsql.load.cost import NO_BOOKS, Books
from pytest_dsql.load.measurement import Arrival, Measurement
from pytest_dsql.load.retry import RETRY
from pytest_dsql.transaction import CellRun, Mix, Tally, stream_seed

if TYPE_CHECKING:
    import psycopg
    from distributed import Client

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.load.fleet import Progress

#: What a cell's share of set-aside rows is made for: more requests per second than a connection without a network can
#: send, and than any published run has reached (24,541/s, DSQL at 256 connections, Seoul 2026-09).
MOST_PER_CONNECTION: Final = 2_000
MOST_PER_CELL: Final = 30_000
#: In open loop a connection carries at most so many times its even part of the requests.
_UNEVEN: Final = 4
#: How long what happens beside a cell may go on when the cell has failed.
_PATIENCE_S: Final = 10.0


class How(TypedDict, total=False):
    """What else can be said of a cell; each has a default."""

    access: Access  #: how transactions draw their keys with `ctx.pick`; evenly unless said otherwise
    attempts: int  #: how often one request is tried at most; 3
    answer_timeout: float  #: seconds without a word after which a connection that owes an answer is lost; 60
    pipeline: bool  #: whether BEGIN goes with a transaction's first statements, in one round trip; no
    workers: int  #: worker processes that make the load; those of the run unless said otherwise
    during: Callable[[], object]  #: runs once, in a thread of its own, a moment after the window has opened


@final
class Unchecked(Exception):
    """The load was made, and then something went wrong (its cause): what was measured is to be kept all the same."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__("what was measured could not be checked")
        self.measurement: Final = measurement

    @property
    def cause(self) -> BaseException:
        """What went wrong."""
        assert self.__cause__ is not None
        return self.__cause__


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """What a cell is."""

    id: str
    arrival: Arrival
    mix: Mix
    connections: int
    workers: int
    warmup_s: float
    window_s: float
    how: How

    def arguments(self) -> dict[str, Any]:
        """Return everything that was asked of the cell as plain data: cells are the same when these are."""
        workload = self.mix.workload
        return {
            "arrival": [self.arrival.kind, self.arrival.rate, self.arrival.tasks],
            "mix": {one.name: [self.mix.weights[one.name], *one.definition()] for one in self.mix},
            "workload": None if workload is None else [type(workload).__qualname__, repr(workload.scale)],
            "connections": self.connections,
            "workers": self.workers,
            "warmup_s": float(self.warmup_s),
            "window_s": float(self.window_s),
            **{name: _described(value) for name, value in self.how.items() if name != "workers"},
        }


def _described(value: object) -> object:
    if isinstance(value, bool | int | float | str):
        return value
    return repr(value) if is_dataclass(value) else getattr(value, "__qualname__", type(value).__qualname__)


@final
@dataclass(frozen=True, slots=True)
class Surroundings:
    """What it is run on and watched by."""

    endpoint: Endpoint
    connect: Callable[[], psycopg.Connection[Any]]  #: for the workload's own statements
    seed: int
    progress: Callable[[str], AbstractContextManager[Callable[[Progress], None]]]
    injections: Callable[[], int]  #: how much latency and how many faults the target has injected so far
    scheduler: Client | None  #: whose workers make the load; None: this host
    books: Books = NO_BOOKS  #: tell what a cell has used
    engine: int | None = None  #: the process of the embedded engine, when that is the target


def measure(shape: Shape, on: Surroundings, number: int, window_s: float) -> tuple[Measurement, dict[str, int] | None]:
    """Run stretch `number` of a cell, and check the data it left; the invariants are None when the mix has none.

    Raises what `run_cell` does; Unchecked because of what `during`, or the check itself, raised.
    """
    from pytest_dsql.load.fleet import CellInterrupted, run_cell
    from pytest_dsql.load.plan import ANSWER_TIMEOUT_S, CellPlan, long_from_s

    workload = shape.mix.workload
    run = begin(shape, on, window_s)
    how = shape.how
    plan = CellPlan(
        id=shape.id,
        endpoint=on.endpoint,
        mix=shape.mix,
        scale=workload.scale if workload else None,
        run=run,
        arrival=shape.arrival,
        connections=shape.connections,
        workers=shape.workers,
        warmup_s=shape.warmup_s,
        window_s=window_s,
        seed=stream_seed(on.seed, shape.id, number),
        access=how.get("access", UNIFORM),
        retry=replace(RETRY, attempts=how.get("attempts", RETRY.attempts)),
        pipeline=how.get("pipeline", False),
        answer_timeout_s=how.get("answer_timeout", ANSWER_TIMEOUT_S),
        long_from_s=long_from_s(shape.window_s),
    )
    before = on.injections()
    beside = Beside(how.get("during"))
    used = on.books.begin()
    try:
        with on.progress(shape.id) as show:
            measurement = run_cell(plan, progress=beside.watching(show), scheduler=on.scheduler, engine=on.engine)
    except CellInterrupted as interruption:
        if interruption.measurement is not None:
            interruption.measurement.simulated = on.injections() != before
            interruption.measurement.cost = on.books.end(used, shape.id, interruption.measurement)
        beside.wait(_PATIENCE_S)
        raise
    except BaseException:
        beside.wait(_PATIENCE_S)
        raise
    try:
        beside.wait()
        measurement.simulated = on.injections() != before
        measurement.cost = on.books.end(used, shape.id, measurement)
        beside.raise_its_error()
        if workload is None:
            return measurement, None
        tally = Tally(
            committed=measurement.committed,
            ambiguous=measurement.ambiguous,
            complete=measurement.interrupted is None,
        )
        return measurement, whole_violations(workload.check_cell(on.connect, run, tally), workload)
    except BaseException as error:  # also Ctrl-C
        raise Unchecked(measurement) from error


def begin(shape: Shape, on: Surroundings, window_s: float) -> CellRun:
    """Have the workload set aside what one run of a cell may use: ids, operation ids, rows."""
    slots = shape.connections
    if shape.mix.workload is None:
        import secrets

        # Nothing in the database hands out numbers here: 24 random bits.
        number = 1 + secrets.randbelow((1 << 24) - 1)
        return CellRun(number=number, operation_prefix=f"{number:x}-", slots=slots)
    most = min(slots * MOST_PER_CONNECTION, MOST_PER_CELL)
    if shape.arrival.rate is not None:
        # A connection takes what is due when it is free, so some take more than their part.
        most = min(most, int(_UNEVEN * shape.arrival.rate) + slots)
    hint = int(most * (shape.warmup_s + window_s))
    return shape.mix.workload.begin_cell(
        on.connect, cell=shape.id, slots=slots, requests_hint=hint, shares=shape.mix.weights
    )


@final
class Beside:
    """Runs something once while a cell's window is open."""

    def __init__(self, work: Callable[[], object] | None) -> None:
        self._work = work
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def watching(self, show: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a receiver of progress that starts the work when the window has opened, and passes everything on."""
        if self._work is None:
            return show

        def watch(progress: Progress) -> None:
            if progress.phase == "window" and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="beside the cell", daemon=True)
                self._thread.start()
            show(progress)

        return watch

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._work()
        except Exception as error:  # raised where the cell was asked for
            self._error = error

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the work is done, when it never began, or after so many seconds."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def raise_its_error(self) -> None:
        """Raise what the work raised; UsageError when the window was over before it could begin."""
        if self._error is not None:
            raise self._error
        if self._work is not None and self._thread is None:
            raise UsageError("the window was too short for what was to happen during it: a second is enough to begin")
