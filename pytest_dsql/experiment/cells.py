"""What `dsql_load` is: runs one cell after the other on a target, checks its invariants and records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Unpack, final

from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.arguments import check_cell, check_rate, check_seconds, check_whole
from pytest_dsql.experiment.stretch import (
    MOST_PER_CELL,
    MOST_PER_CONNECTION,
    How,
    Shape,
    Surroundings,
    Unchecked,
    measure,
)
from pytest_dsql.load.arrivals import SCHEDULED
from pytest_dsql.load.cost import NO_BOOKS, Books, Dpu
from pytest_dsql.load.measurement import Arrival, ConnectStats, Measurement
from pytest_dsql.load.plan import LONG_FROM_S
from pytest_dsql.transaction import Mix

if TYPE_CHECKING:
    import psycopg
    from distributed import Client

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.experiment.capacity import Capacity
    from pytest_dsql.experiment.plans import Plan
    from pytest_dsql.experiment.repeats import Repeats
    from pytest_dsql.load.cell import Cell
    from pytest_dsql.load.connections import Connections
    from pytest_dsql.load.fleet import Progress
    from pytest_dsql.results.kept import KeptCells
    from pytest_dsql.slo.connecting_limit import ConnectingLimit
    from pytest_dsql.slo.objectives import Slo


@final
@dataclass(slots=True, repr=False)
class Load:
    """Measures cells on one target for one test. Each method runs one cell and returns what it measured.

    One cell at a time runs on a host: `exclusive` is a lock that every process of the run shares.
    """

    endpoint: Endpoint
    connect: Callable[[], psycopg.Connection[Any]]  #: for the workload's own statements
    plan: Plan
    target: str
    test: str
    seed: int
    workers: int
    exclusive: Callable[[], AbstractContextManager[None]]
    record: Callable[[Cell | Connections], None]
    progress: Callable[[str], AbstractContextManager[Callable[[Progress], None]]]  #: shows a cell while it runs
    note: Callable[[str, Mapping[str, Any]], None]  #: keeps figures that are no cell's
    #: How much latency and how many faults the target has injected so far: when it grows, a cell was simulated.
    injections: Callable[[], int] = lambda: 0
    engine: int | None = None  #: the process of the embedded engine, when that is the target: cells look at it
    scheduler: Client | None = None  #: of Dask, whose workers make the load; None: this host
    kept: KeptCells | None = None  #: where whole cells are kept for when the run is resumed; None: nowhere
    about: Mapping[str, Any] = field(default_factory=dict)  #: of the whole run: a cell is taken only if alike
    books: Books = NO_BOOKS  #: let cells begin while the budget allows it, and tell what each has used
    name: str = ""  #: what the cells' ids begin with: the test's id, unless one test measures several targets
    regions: Mapping[str, Endpoint] = field(default_factory=dict)  #: where the target has several
    _made: int = field(default=0, init=False)
    _repeat: int = field(default=1, init=False)
    _capacities: int = field(default=0, init=False)
    _cells: list[Cell] = field(default_factory=list, init=False)

    def __repr__(self) -> str:
        return f"<load on {self.target}, {self.workers} worker{'' if self.workers == 1 else 's'}>"

    def closed(
        self,
        mix: Mix,
        *,
        connections: int,
        warmup: float | None = None,
        duration: float | None = None,
        **how: Unpack[How],
    ) -> Cell:
        """Closed loop: each of `connections` sends its next request when the last one answered.

        `warmup` and `duration` are seconds, the plan's by default; for the rest see `How`. Raises UsageError for a
        wrong argument, ConnectionFailed or LoadFailed when the load could not be made.
        """
        warmup = self.plan.warmup_s if warmup is None else warmup
        duration = self.plan.window_s if duration is None else duration
        return self._cell(Arrival("closed"), mix, connections, warmup, duration, how)

    def churn(
        self,
        mix: Mix,
        *,
        connections: int,
        warmup: float | None = None,
        duration: float | None = None,
        **how: Unpack[How],
    ) -> Cell:
        """Closed loop with a new connection for each request; connecting is part of the latency."""
        warmup = self.plan.connection_warmup_s if warmup is None else warmup
        duration = self.plan.connection_window_s if duration is None else duration
        return self._cell(Arrival("churn"), mix, connections, warmup, duration, how)

    def pooled(
        self,
        mix: Mix,
        *,
        tasks: int,
        pool: int,
        warmup: float | None = None,
        duration: float | None = None,
        **how: Unpack[How],
    ) -> Cell:
        """Closed loop of `tasks` that share a pool of `pool` connections, as the tasks of an application do.

        A task asks for a connection as soon as its request has ended; those that find none free wait in order. Latency
        counts from the asking; `cell.wait` is the part spent waiting for a connection.
        """
        warmup = self.plan.warmup_s if warmup is None else warmup
        duration = self.plan.window_s if duration is None else duration
        check_whole("tasks", tasks, 1, 1_000_000)
        workers = min(how.get("workers", self.workers), tasks)
        return self._cell(Arrival("pooled", tasks=tasks), mix, pool, warmup, duration, {**how, "workers": workers})

    def open(
        self,
        mix: Mix,
        *,
        rate: float,
        connections: int,
        arrival: Literal["poisson", "constant"] = "poisson",
        warmup: float | None = None,
        duration: float | None = None,
        **how: Unpack[How],
    ) -> Cell:
        """Open loop: requests arrive at `rate` per second, whether or not the database keeps up.

        They are carried by `connections`; a request that finds none free waits, and its latency counts from when it
        was to start. One that has waited for 2 s is skipped and counts as failed.
        """
        warmup = self.plan.warmup_s if warmup is None else warmup
        duration = self.plan.window_s if duration is None else duration
        if arrival not in SCHEDULED:
            raise UsageError(f"arrival must be one of {', '.join(sorted(SCHEDULED))}, not {arrival!r}")
        check_rate(rate)
        return self._cell(Arrival(arrival, float(rate)), mix, connections, warmup, duration, how)

    def capacity(
        self,
        mix: Mix,
        slo: Slo,
        *,
        start: float,
        most: float = MOST_PER_CELL,
        growth: float = 2.0,
        precision: float = 0.1,
        repeats: int = 1,
        connections: int | None = None,
        arrival: Literal["poisson", "constant"] = "poisson",
        warmup: float | None = None,
        duration: float | None = None,
        **how: Unpack[How],
    ) -> Capacity:
        """Search in open loop for the highest rate that meets `slo`: up from `start`, never above `most`.

        Every cell is judged as any other, extends itself, and is in the results. `connections` are those of each cell;
        by default so many that requests can only run out of them when the database is slower than the slowest limit.
        With `repeats` of 3 or more the rate that is found is not provisional. Raises SloMissed at once when a cell
        violates an invariant.
        """
        from pytest_dsql.experiment.capacity import connections_for, find_capacity
        from pytest_dsql.experiment.search import SearchPlan

        __tracebackhide__ = True
        try:
            plan = SearchPlan(start=start, most=most, growth=growth, precision=precision, repeats=repeats)
        except ValueError as error:
            raise UsageError(str(error)) from None

        def measure(rate: float) -> Cell:
            return self.open(
                mix,
                rate=rate,
                connections=connections or connections_for(rate, slo),
                arrival=arrival,
                warmup=warmup,
                duration=duration,
                **how,
            )

        capacity = find_capacity(self.target, plan, slo, measure)
        self._capacities += 1
        suffix = "" if self._capacities == 1 else f" #{self._capacities}"
        self.note(f"{self.name or self.test} capacity{suffix}", capacity.figures())
        return capacity

    def repeat(self, times: int, measure: Callable[[], Cell]) -> Repeats:
        """Run `measure`, which returns a cell of this load, so many times, and judge the runs together.

        Three or more make a result; fewer are provisional.
        """
        from pytest_dsql.experiment.repeats import Repeats

        check_whole("times", times, 1, 1_000)
        return Repeats([self.run(number, measure) for number in range(1, times + 1)])

    def run(self, number: int, measure: Callable[[], Cell]) -> Cell:
        """Run `measure`, whose cell is run `number` of its kind: the results file tells the runs by that."""
        self._repeat = number
        try:
            return measure()
        finally:
            self._repeat = 1

    def through(self, region: str) -> Load:
        """Return what measures through the endpoint of a Region, where the target has several.

        Raises UsageError for a Region that it isn't in.
        """
        from dataclasses import replace

        from pytest_dsql.results.names import id_on

        if region not in self.regions:
            known = ", ".join(self.regions) or "one that it doesn't tell"
            raise UsageError(f"the target is not in {region}; its Regions: {known}")
        load = replace(self, endpoint=self.regions[region], name=id_on(self.name or self.test, region))
        load._cells = self._cells  # whoever asks whether one is void asks for all
        return load

    def connect_burst(self, n: int) -> Connections:
        """Ask for `n` connections at once, hold them until the last is decided, and close them."""
        from pytest_dsql.load.burst import connect_burst

        check_whole("n", n, 1, 10_000)
        workers = min(self.workers, n)
        return self._connections(
            "burst", n, workers, lambda: connect_burst(self.endpoint, n, workers=workers, scheduler=self.scheduler)
        )

    def connect_rate(self, rate: float, *, duration: float, workers: int | None = None) -> Connections:
        """Ask for `rate` new connections a second for so many seconds, each used once and closed.

        They are asked for whether or not the target keeps up: ten times its limit is a question, too.
        """
        from pytest_dsql.load.burst import connect_burst

        check_rate(rate)
        check_seconds("duration", duration, 0.1)
        n = max(1, round(rate * duration))
        check_whole("rate x duration", n, 1, 10_000_000)
        workers = min(self.workers if workers is None else workers, n)
        check_whole("workers", workers, 1, 256)
        return self._connections(
            "sustained",
            n,
            workers,
            lambda: connect_burst(self.endpoint, n, workers=workers, rate=rate, scheduler=self.scheduler),
            asked_per_s=float(rate),
        )

    def what_limits(self, *runs: Connections) -> ConnectingLimit:
        """Decide by runs with more and more worker processes what limits new connections, and note it with each.

        The client, a rate limit of the server, the server, or none of them: see `slo.connecting_limit`.
        """
        from pytest_dsql.slo.connecting_limit import what_limits_connecting

        if not runs:
            raise UsageError("what limits new connections is decided by at least one run")
        first, *more = sorted(runs, key=lambda one: one.workers)
        found = what_limits_connecting(first.as_run(), *(one.as_run() for one in more))
        for one in runs:
            one.limited(found)
        return found

    def sequential_connects(self, n: int) -> Connections:
        """Connect, `SELECT 1` and close, `n` times one after the other."""
        from pytest_dsql.load.burst import sequential_connects

        check_whole("n", n, 1, 10_000)
        return self._connections("sequential", n, 1, lambda: sequential_connects(self.endpoint, n, seed=self.seed))

    def dpu(self, mix: Mix, *, samples: int = 5) -> Mapping[str, Dpu]:
        """Return what each transaction of a mix costs in DPU, on the average of so many requests; nothing is committed.

        Asked of EXPLAIN ANALYZE VERBOSE, so by the target's own word, minimums of a transaction included; a COMMIT's
        own work and new connections are not in it. The figures are in the results' experiments, and cells of these
        transactions are reckoned by them. Raises UsageError on a target that doesn't tell.
        """
        from pytest_dsql.experiment.explaining import explain_mix, figures_of
        from pytest_dsql.experiment.stretch import begin

        check_whole("samples", samples, 1, 1_000)
        identity = f"{self.test} dpu"
        with self.exclusive():
            self.books.admit(identity)
            shape = Shape(identity, Arrival("closed"), mix, 1, 1, 0.0, 1.0, {})
            on = Surroundings(self.endpoint, self.connect, self.seed, self.progress, self.injections, None)
            # So long that as many requests are set aside for as are run.
            run = begin(shape, on, 2 * samples * len(mix.transactions) / MOST_PER_CONNECTION)
            scale = mix.workload.scale if mix.workload else None
            with self.connect() as connection:
                costs = explain_mix(connection, mix, run, seed=self.seed, scale=scale, samples=samples)
        self.books.learn(costs)
        self.note(identity if self.name == "" else f"{self.name} dpu", figures_of(costs, samples))
        return costs

    def raise_if_void(self) -> None:
        """Raise SloMissed for a cell that violated an invariant: it is void, whether or not the test asks."""
        from pytest_dsql.errors import SloMissed

        __tracebackhide__ = True
        for cell in self._cells:
            if any((cell.invariants or {}).values()):
                raise SloMissed(cell.table())

    def _connections(
        self, kind: str, n: int, workers: int, run: Callable[[], ConnectStats], asked_per_s: float | None = None
    ) -> Connections:
        from pytest_dsql.experiment.connecting import measure_connections

        return measure_connections(self, self._next_id(), kind, n, workers, run, asked_per_s)

    def _cell(self, arrival: Arrival, mix: Mix, connections: int, warmup: float, duration: float, how: How) -> Cell:
        from pytest_dsql.experiment.keeping import Keeper
        from pytest_dsql.load.cell import Cell
        from pytest_dsql.load.fleet import CellInterrupted

        if not isinstance(mix, Mix):
            raise UsageError(f"dsql_load takes a Mix of transactions, not {type(mix).__name__}")
        workers = how.get("workers", self.workers)
        check_cell(connections, workers, warmup, duration, how)
        identity = self._next_id()
        repeat = self._repeat
        shape = Shape(identity, arrival, mix, connections, min(workers, connections), warmup, duration, how)
        surroundings = Surroundings(
            self.endpoint,
            self.connect,
            self.seed,
            self.progress,
            self.injections,
            self.scheduler,
            self.books,
            self.engine,
        )

        keeper = Keeper(self.kept, identity, {**self.about, "repeat": repeat, **shape.arguments()})

        def stretch(number: int, window_s: float) -> tuple[Measurement, dict[str, int] | None]:
            keeper.forget()
            with self.exclusive():
                self.books.admit(identity)
                return measure(shape, surroundings, number, window_s)

        def record(cell: Cell) -> None:
            self.record(cell)
            keeper.keep(cell.measurement, cell.invariants, cell.simulated)

        def more(windows: int) -> tuple[Measurement, dict[str, int] | None]:
            # A further stretch has as many windows as the cell has had: 1, then 2. So its number is new.
            try:
                return stretch(1 + windows, duration * windows)
            except Unchecked as failed:  # what the cell had before is recorded, and stands
                raise failed.cause from None

        def cell_of(measurement: Measurement, invariants: dict[str, int] | None) -> Cell:
            cell = Cell(
                measurement,
                id=identity,
                test=self.test,
                target=self.target,
                invariants=invariants,
                repeat=repeat,
                window_s=duration,
                extend=None if duration > LONG_FROM_S else more,
                record=record,
            )
            self._cells.append(cell)
            record(cell)
            return cell

        # What happens beside a cell is a part of the test, which may rely on what that did.
        taken = None if how.get("during") else keeper.take(Measurement)
        if taken is not None:
            return cell_of(taken.figures, taken.invariants)
        try:
            return cell_of(*stretch(1, duration))
        except CellInterrupted as interruption:
            if interruption.measurement is not None:
                cell_of(interruption.measurement, None if mix.workload is None else {})
            raise
        except Unchecked as failed:
            reason = "what was to follow the load did not come to its end"
            failed.measurement.interrupted = failed.measurement.interrupted or reason
            cell_of(failed.measurement, None if mix.workload is None else {})
            raise failed.cause from None

    def _next_id(self) -> str:
        self._made += 1
        suffix = "" if self._made == 1 else f"#{self._made}"
        return f"{self.name or self.test}{suffix}"
