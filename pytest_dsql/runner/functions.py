"""Functions that do single operations, many at once: in Lambda, or as threads here with the same code."""

from __future__ import annotations

import queue
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, final

from pytest_dsql.cost.functions import Work
from pytest_dsql.errors import UsageError
from pytest_dsql.load.cost import NO_BOOKS, Books, Cost, Operations
from pytest_dsql.load.statistics import LatencySummary, distribution
from pytest_dsql.runner.function import Function, unpacked
from pytest_dsql.transaction import SLOT_BITS, CellRun, Tally, stream_seed
from pytest_dsql.workloads.inserts.workload import insert_row, read_row

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.workloads.inserts.workload import Inserts

Event: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]


class Fleet(Protocol):
    """Where functions run."""

    @property
    def place(self) -> str:
        """`here` or `lambda`."""

    def call(self, events: Sequence[Event], *, concurrency: int) -> list[Answer]:
        """Have all events worked on, so many at once at most, and return the answers in the events' order."""

    def close(self) -> None:
        """Let go of what the functions hold."""


@final
class Here:
    """Threads of this process, each a function of its own with a connection of its own."""

    place: Final = "here"

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._idle: queue.SimpleQueue[Function] = queue.SimpleQueue()
        self._made: list[Function] = []

    def call(self, events: Sequence[Event], *, concurrency: int) -> list[Answer]:
        """As `Fleet.call`."""
        with ThreadPoolExecutor(concurrency) as threads:
            return list(threads.map(self._one, events))

    def _one(self, event: Event) -> Answer:
        try:
            function = self._idle.get_nowait()
        except queue.Empty:
            function = Function(self._endpoints)
            self._made.append(function)
        try:
            return function(event)
        finally:
            self._idle.put(function)

    def close(self) -> None:
        """Close the functions' connections."""
        for one in self._made:
            one.close()


@final
@dataclass(frozen=True, slots=True)
class Called:
    """What calls showed, all together."""

    place: str
    calls: int
    concurrency: int
    operations: int
    committed: int
    ambiguous: int
    failed: Mapping[str, int]  #: SQLSTATE, or `connection` -> operations
    connected: int  #: connections made
    cold: int  #: functions that had not been called before
    rate_per_s: float  #: operations committed per second of the functions' own time, times the concurrency
    latency: LatencySummary  #: of an operation, connecting included where there was no connection
    violations: Mapping[str, int]  #: of the workload's invariants
    cost: Cost | None = None  #: of the database; None when nobody knows

    def figures(self) -> dict[str, float | int | str]:
        """What the results file keeps of it."""
        return {
            "place": self.place,
            "calls": self.calls,
            "concurrency": self.concurrency,
            "operations": self.operations,
            "committed": self.committed,
            "failed": sum(self.failed.values()),
            "connected": self.connected,
            "cold": self.cold,
            "rate_per_s": self.rate_per_s,
            "p50_ms": self.latency.p50_ms,
            "p99_ms": self.latency.p99_ms,
            **({"dpu": round(self.cost.dpu, 3)} if self.cost is not None and self.cost.dpu is not None else {}),
        }


@final
@dataclass(frozen=True, slots=True)
class Functions:
    """Calls functions and checks what they left: `dsql_functions`."""

    fleet: Fleet
    inserts: Inserts
    connect: Callable[[], psycopg.Connection[Any]]
    seed: int
    test: str
    books: Books = NO_BOOKS  #: let calls begin while the budget allows it, and tell what each has used
    count: Callable[[Work], None] = lambda _work: None  #: is told of the functions' work, which may be paid for

    def call(
        self,
        operation: Literal["insert", "read"],
        *,
        calls: int,
        concurrency: int,
        times: int = 1,
        keep: bool,
        region: str | None = None,
    ) -> Called:
        """Make `calls` calls, `concurrency` at once at most, each of which does the operation `times` times.

        `keep`: over the connection that the function has kept, else over a new one each time. `region` chooses one of
        the target's endpoints. Raises UsageError for a wrong number, BudgetReached when no more may begin, AwsError
        or DsqlError when the calls failed.
        """
        for name, value, most in (
            ("calls", calls, 1 << SLOT_BITS),
            ("concurrency", concurrency, 1_000),
            ("times", times, 100_000),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise UsageError(f"{name} must be a whole number from 1 to {most:,}, not {value!r}")
        self.books.admit(self.test)
        run = self.inserts.begin_cell(self.connect, cell=self.test, slots=calls, requests_hint=calls * times)
        events = [
            _event(run, slot, operation, times=times, keep=keep, region=region, seed=self.seed) for slot in range(calls)
        ]
        before = self.books.begin()
        answers = self.fleet.call(events, concurrency=concurrency)
        connected = sum(one["connected"] for one in answers)
        cost = self.books.end(before, f"{self.test}, calls of functions", Operations(calls * times, connected))
        busy_s = sum(one["elapsed_us"] for one in answers) / 1e6
        self.count(Work(calls=calls, busy_s=busy_s, starts=sum(one["cold"] for one in answers)))
        return self._summary(run, answers, concurrency, cost)

    def _summary(self, run: CellRun, answers: Sequence[Answer], concurrency: int, cost: Cost | None) -> Called:
        durations = array("q")
        failed: Counter[str] = Counter()
        for one in answers:
            durations.extend(1000 * value for value in unpacked(one["packed"]))
            failed.update(one["failed"])
        committed = sum(one["committed"] for one in answers)
        ambiguous = sum(one["ambiguous"] for one in answers)
        name = insert_row.name if answers[0]["operation"] == "insert" else read_row.name
        violations = self.inserts.check_cell(
            self.connect, run, Tally(committed={name: committed}, ambiguous={name: ambiguous})
        )
        busy_s = sum(one["elapsed_us"] for one in answers) / 1e6
        return Called(
            place=self.fleet.place,
            calls=len(answers),
            concurrency=min(concurrency, len(answers)),
            operations=len(durations),
            committed=committed,
            ambiguous=ambiguous,
            failed=dict(failed),
            connected=sum(one["connected"] for one in answers),
            cold=sum(one["cold"] for one in answers),
            rate_per_s=committed / busy_s * min(concurrency, len(answers)) if busy_s else 0.0,
            latency=LatencySummary.of(distribution(durations)),
            violations=violations,
            cost=cost,
        )


def _event(run: CellRun, slot: int, operation: str, *, times: int, keep: bool, region: str | None, seed: int) -> Event:
    return {
        "operation": operation,
        "times": times,
        "keep": keep,
        "region": region,
        "run": {"number": run.number, "prefix": run.operation_prefix, "slots": run.slots},
        "slot": slot,
        "seed": stream_seed(seed, "function", run.number),
    }
