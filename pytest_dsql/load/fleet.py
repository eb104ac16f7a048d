"""Runs a cell on worker processes: starts them together, collects what they report, makes one measurement of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from pytest_dsql.errors import DsqlError, LoadFailed
from pytest_dsql.load.digest import Condenser
from pytest_dsql.load.health import worst
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.machine import MachineWatch
from pytest_dsql.load.measurement import ConnectStats, Measurement, Outcome
from pytest_dsql.load.merging import merge_connects
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.load.processes import Fleet, Worker
from pytest_dsql.load.recorder import Done, Tallies
from pytest_dsql.load.statistics import distribution
from pytest_dsql.load.wire import unpack_counts

if TYPE_CHECKING:
    from distributed import Client

Phase: TypeAlias = Literal["connecting", "warm-up", "window", "drain"]

#: Workers begin this long after the word was given, so that it has reached all of them.
_LEAD_NS: Final = 30_000_000
_FAR_LEAD_NS: Final = 1_500_000_000
#: What a worker may take beyond its plan before it is killed.
_GRACE_S: Final = 30.0
_PROGRESS_S: Final = 0.25
_STALE_NS: Final = 1_500_000_000


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a cell is."""

    phase: Phase
    elapsed_s: float  #: since the phase began
    phase_s: float | None  #: how long the phase is planned to take, None for connecting
    connected: int  #: connections made
    connections: int
    outcomes: Mapping[str, int]  #: requests that ended so far, by outcome, warm-up included
    tps: float  #: committed per second lately
    errors: Mapping[str, int] = field(default_factory=dict)  #: failed attempts so far by SQLSTATE, warm-up included


@final
class CellInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a cell. Carries what was measured until then."""

    def __init__(self, measurement: Measurement | None) -> None:
        super().__init__("interrupted during a cell; what it had measured is in the results")
        self.measurement = measurement  #: None when the cell had not begun


def run_cell(
    plan: CellPlan,
    *,
    progress: Callable[[Progress], None] | None = None,
    scheduler: Client | None = None,
    engine: int | None = None,
) -> Measurement:
    """Run a cell and return what it measured; with a Dask `scheduler`, on the hosts of its workers.

    `engine` is the process of the embedded engine when that is what is measured: then it is looked at, too.

    A worker that dies ends the cell: `Measurement.interrupted` says so, and what had been reported is kept. Raises
    ConnectionFailed or CredentialsError when the first connections can't be made, TransactionError when a
    transaction's own code is wrong, UsageError when the mix can't be sent to a worker, LoadFailed when the workers
    can't be started, and CellInterrupted (a KeyboardInterrupt) on Ctrl-C and
    SIGTERM.
    """
    plan = replace(
        plan,
        endpoint=plan.endpoint.resolved(),
        mix=plan.mix.without_workload(),
        run=replace(plan.run, snapshot=None),  # the controller's own note, and possibly large
    )
    cell = _Cell(plan, progress, scheduler, engine)
    try:
        return cell.measure()
    finally:
        cell.close()


@final
class _Cell:
    """One run of a cell, seen from the controller."""

    def __init__(
        self,
        plan: CellPlan,
        progress: Callable[[Progress], None] | None,
        scheduler: Client | None,
        engine: int | None,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._loop = Loop()
        self._fleet = Fleet(self._loop, received=self._received, died=self._died, scheduler=scheduler)
        # What other hosts send of each second must not grow with the rate: they count the requests themselves.
        self._counting = plan.is_long or scheduler is not None
        self._lead_ns = _LEAD_NS if scheduler is None else _FAR_LEAD_NS
        # Processes that Dask started would pass for those of other programs.
        self._watch = None if engine is None or scheduler is not None else MachineWatch(engine)
        self._tallies: Tallies | Condenser = Tallies.of(plan.mix.transactions)
        self._shares = plan.shares()
        self._connected = [0] * len(self._shares)
        self._ready = 0
        self._rtt: list[int] | None = None
        self._done: dict[int, Done] = {}
        self._gone: set[int] = set()
        self._failure: DsqlError | None = None
        self._interrupted: str | None = None
        self._interrupted_ns = 0
        self._by_user = False
        self._began_ns = perf_counter_ns()
        self._window_ns: tuple[int, int] | None = None  #: start and end, once the word was given
        self._recent: list[tuple[int, int]] = []  #: time and committed so far, for the current rate

    def measure(self) -> Measurement:
        """Run the cell to its end."""
        previous = self._take_signals()
        try:
            self._prepare()
            self._begin()
            self._wait(lambda: len(self._done) + len(self._gone) == len(self._shares))
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._by_user:
            raise CellInterrupted(self._measurement())
        if self._failure is not None:
            raise self._failure
        return self._measurement()

    def close(self) -> None:
        """End the workers."""
        self._fleet.close()
        self._loop.close()

    # -- phases --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Start the workers and have them connect."""
        self._fleet.start(self._shares)
        self._show()
        self._wait(lambda: self._ready == len(self._shares))
        self._fleet.workers[0].channel.send(("rtt",))
        self._wait(lambda: self._rtt is not None)

    def _begin(self) -> None:
        """Give the word: all workers begin at the same moment of the clock they share."""
        plan = self._plan
        if self._watch is not None:
            self._watch.open()
        start_ns = perf_counter_ns() + self._lead_ns
        window_ns = start_ns + int(plan.warmup_s * 1e9)
        end_ns = window_ns + int(plan.window_s * 1e9)
        self._began_ns = start_ns
        self._window_ns = (window_ns, end_ns)
        if self._counting:
            self._tallies = Condenser.of(plan, start_ns)
        self._fleet.tell("start", start_ns)
        if self._watch is not None:
            self._loop.at(end_ns, self._watch.close)
        self._loop.at(end_ns + int((plan.drain_s + _GRACE_S) * 1e9), self._kill_the_late)

    def _kill_the_late(self) -> None:
        for worker in self._fleet.workers:
            if not worker.finished:
                worker.kill(f"it was not done {_GRACE_S:g} s after the cell's end")

    def _wait(self, over: Callable[[], bool]) -> None:
        """Listen to the workers until `over`, or until the cell has nothing more to wait for."""
        while not over():
            self._loop.run()
            if self._window_ns is None:
                if self._by_user:
                    raise CellInterrupted(None)
                if self._failure is not None:
                    raise self._failure
                if self._interrupted is not None:
                    raise LoadFailed(self._interrupted)
            elif self._failure is not None:
                raise self._failure

    # -- what workers say ----------------------------------------------------------------------------------------

    def _received(self, worker: Worker, message: tuple[Any, ...]) -> None:
        match message:
            case ("report", batch):
                self._tallies.add(batch)
                return
            case ("counts", packed):
                assert isinstance(self._tallies, Condenser)
                self._tallies.include(unpack_counts(packed))
                return
            case ("alive", connected):
                self._connected[worker.index] = connected
                return
            case ("ready", connected):
                self._connected[worker.index] = connected
                self._ready += 1
            case ("rtt", times):
                self._rtt = times
            case ("done", done):
                worker.finished = True
                self._done[worker.index] = done
            case ("failed", error):
                worker.finished = True
                self._gone.add(worker.index)
                if self._failure is None:
                    self._failure = error
        self._loop.stop()

    def _died(self, worker: Worker, epitaph: str) -> None:
        worker.finished = True
        self._gone.add(worker.index)
        self._stop(f"{epitaph} ({self._when()})")
        self._loop.stop()

    def _when(self) -> str:
        if self._window_ns is None:
            return "while connecting"
        seconds = (perf_counter_ns() - self._window_ns[0]) / 1e9
        return f"{seconds:.1f} s into the window" if seconds >= 0 else "during the warm-up"

    def _stop(self, reason: str) -> None:
        """End the cell early; the workers that are left drain and report."""
        if self._interrupted is None:
            self._interrupted = reason
            self._interrupted_ns = perf_counter_ns()
            if self._watch is not None:
                self._watch.close()
        self._fleet.tell("stop")

    # -- signals -------------------------------------------------------------------------------------------------

    def _take_signals(self) -> dict[signal.Signals, Any]:
        """Handle Ctrl-C and SIGTERM between two messages instead of inside of one. Only the main thread may."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def interrupt(number: int, _frame: FrameType | None) -> None:
            if self._by_user:  # asked twice: at once
                raise KeyboardInterrupt
            self._by_user = True
            who = "the user" if number == signal.SIGINT else signal.Signals(number).name
            self._loop.at(0, lambda: self._stop(f"interrupted by {who} ({self._when()})"))
            self._loop.stop()

        return {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}

    # -- results -------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Tell how far the cell is, four times a second; also what wakes the loop for a pending Ctrl-C."""
        now_ns = perf_counter_ns()
        self._loop.at(now_ns + int(_PROGRESS_S * 1e9), self._show)
        if self._progress is None:
            return
        plan = self._plan
        phase: Phase = "connecting"
        phase_s: float | None = None
        since_ns = self._began_ns
        if self._window_ns is not None:
            opens_ns, closes_ns = self._window_ns
            if now_ns < opens_ns:
                phase, phase_s = "warm-up", plan.warmup_s
            elif now_ns < closes_ns:
                phase, phase_s, since_ns = "window", plan.window_s, opens_ns
            else:
                phase, phase_s, since_ns = "drain", plan.drain_s, closes_ns
        tallies = self._tallies
        committed = sum(tallies.committed)
        # Other hosts tell once a second: a rate is between two moments at which there was something new.
        if not self._recent or committed != self._recent[-1][1] or now_ns - self._recent[-1][0] > _STALE_NS:
            self._recent = [*self._recent[-4:], (now_ns, committed)]
        (then_ns, before), (last_ns, latest) = self._recent[0], self._recent[-1]
        self._progress(
            Progress(
                phase=phase,
                elapsed_s=max(0.0, (now_ns - since_ns) / 1e9),
                phase_s=phase_s,
                connected=sum(self._connected),
                connections=plan.connections,
                outcomes={one.name.lower(): tallies.outcomes[one] for one in Outcome},
                tps=(latest - before) / ((last_ns - then_ns) / 1e9) if last_ns > then_ns else 0.0,
                errors=dict(tallies.errors),
            )
        )

    def _measurement(self) -> Measurement:
        plan = self._plan
        assert self._window_ns is not None
        opens_ns, closes_ns = self._window_ns
        duration_s = plan.window_s
        if self._interrupted is not None:
            duration_s = max(0.0, min(closes_ns, self._interrupted_ns) - opens_ns) / 1e9
        if self._interrupted is None:
            arrivals = sum(one.arrivals for one in self._done.values())
            assert arrivals == sum(self._tallies.outcomes), "every request has one outcome"
        connect = ConnectStats()
        for one in self._done.values():
            connect = merge_connects(connect, one.connect)
        connect.elapsed_ns = max((one.connect.elapsed_ns for one in self._done.values()), default=0)
        tallies = self._tallies
        return Measurement(
            arrival=plan.arrival,
            access=plan.access.describe(),
            max_attempts=plan.retry.attempts,
            pipeline=plan.pipeline,
            connections=plan.connections,
            workers=len(self._shares),
            warmup_s=plan.warmup_s,
            duration_s=duration_s,
            samples=tallies.samples(opens_ns, closes_ns) if isinstance(tallies, Tallies) else {},
            counted=tallies.result(duration_s) if isinstance(tallies, Condenser) else None,
            spill=tallies.spill if isinstance(tallies, Condenser) else tallies.spill(opens_ns, closes_ns),
            generator=worst([one.health for one in self._done.values() if one.health is not None]),
            connect=connect,
            rtt_ns=distribution(self._rtt or []),
            committed=dict(zip(self._tallies.names, self._tallies.committed, strict=True)),
            ambiguous=dict(zip(self._tallies.names, self._tallies.ambiguous, strict=True)),
            interrupted=self._interrupted,
            clock_uncertainty_ns=self._fleet.clock_uncertainty_ns,
            engine=None if self._watch is None else self._watch.work,
        )
