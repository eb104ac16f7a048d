"""What one cell is to do: the description that the controller splits over its worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.access import UNIFORM, Access
from pytest_dsql.load.arrivals import SCHEDULED
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.retry import RETRY, RetryPolicy
from pytest_dsql.transaction import CellRun, Mix

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint

#: How long requests in flight may still run after the window has closed.
DRAIN_S: Final = 5.0
#: A connection attempt that takes longer has failed.
CONNECT_TIMEOUT_S: Final = 30.0
#: A connection is replaced after this age, give or take a tenth; DSQL cuts it at 60 min (AWS user guide, "Cluster
#: quotas and database limits in Amazon Aurora DSQL").
CONNECTION_LIFETIME_S: Final = 50 * 60.0
#: A connection on which an answer is due, and nothing has come for so long, is lost: its peer may be gone without a
#: word, or hold it open and say nothing (which TCP's own probes don't notice).
ANSWER_TIMEOUT_S: Final = 60.0
#: The requests of a window that is longer are counted as they come, not kept.
LONG_FROM_S: Final = 15 * 60.0


def long_from_s(window_s: float) -> float:
    """Return from which length on the stretches of a cell with such windows are counted: all of them, or none.

    What was kept and what was counted can't be put together, and the last stretch has two windows.
    """
    return 0.0 if 2 * window_s > LONG_FROM_S else LONG_FROM_S


@final
@dataclass(frozen=True, slots=True)
class CellPlan:
    """One measured combination. Raises ValueError when the parts do not fit together."""

    id: str
    endpoint: Endpoint
    mix: Mix  #: without its workload
    scale: Any  #: what transactions see as `ctx.scale`
    run: CellRun
    arrival: Arrival
    connections: int  #: over all workers
    workers: int
    warmup_s: float
    window_s: float
    seed: int
    access: Access = UNIFORM
    retry: RetryPolicy = RETRY
    pipeline: bool = False  #: BEGIN goes with a transaction's first statements, in one pipeline
    drain_s: float = DRAIN_S
    connection_lifetime_s: float = CONNECTION_LIFETIME_S
    answer_timeout_s: float = ANSWER_TIMEOUT_S
    long_from_s: float = LONG_FROM_S

    def __post_init__(self) -> None:
        rate = self.arrival.rate
        if self.is_open != (rate is not None):
            raise ValueError(f"arrivals of kind {self.arrival.kind!r} {'have no' if rate else 'need a'} rate")
        if rate is not None and not 0 < rate < float("inf"):
            raise ValueError(f"a rate is a positive number of requests per second, not {rate!r}")
        tasks = self.arrival.tasks
        if self.is_pooled != (tasks is not None):
            raise ValueError(f"arrivals of kind {self.arrival.kind!r} {'have no' if tasks else 'need'} tasks")
        if tasks is not None and tasks < self.worker_count:
            raise ValueError(f"{tasks} tasks can't be shared out to {self.worker_count} workers")
        if self.connections < 1:
            raise ValueError(f"a cell needs at least one connection, not {self.connections}")
        if self.workers < 1:
            raise ValueError(f"a cell needs at least one worker, not {self.workers}")
        if self.run.slots < self.connections:
            raise ValueError(f"{self.connections} connections need as many slots; the run has {self.run.slots}")
        if self.answer_timeout_s <= 0 or self.connection_lifetime_s <= 0:
            raise ValueError("a connection's lifetime and the time for an answer must be longer than 0 s")
        if self.window_s <= 0 or self.warmup_s < 0 or self.drain_s < 0:
            raise ValueError("the window must be longer than 0 s, warm-up and drain not shorter than 0 s")

    @property
    def is_open(self) -> bool:
        """Whether requests arrive by a schedule."""
        return self.arrival.kind in SCHEDULED

    @property
    def is_pooled(self) -> bool:
        """Whether tasks share the connections."""
        return self.arrival.kind == "pooled"

    @property
    def is_long(self) -> bool:
        """Whether requests are counted and not kept, so that the cell needs no more memory the longer it goes on."""
        return self.window_s > self.long_from_s

    @property
    def worker_count(self) -> int:
        """Worker processes that share the cell: there are never more than connections."""
        return min(self.workers, self.connections)

    def shares(self) -> list[WorkerShare]:
        """Split the connections evenly."""
        workers = self.worker_count
        shares = []
        first = 0
        for index in range(workers):
            count = _part(self.connections, index, workers)
            tasks = _part(self.arrival.tasks or 0, index, workers)
            shares.append(WorkerShare(plan=self, index=index, first_slot=first, connections=count, tasks=tasks))
            first += count
        return shares


def _part(whole: int, index: int, parts: int) -> int:
    """Return the size of one of several parts that are as equal as can be."""
    return whole // parts + (index < whole % parts)


@final
@dataclass(frozen=True, slots=True)
class WorkerShare:
    """The part of a cell that one worker process does. Its k-th connection is slot `first_slot + k`."""

    plan: CellPlan
    index: int
    first_slot: int
    connections: int
    tasks: int = 0  #: that share the connections, of a pool only


@final
@dataclass(frozen=True, slots=True)
class BurstShare:
    """The part of a burst that one worker process does: `connections` requested at once, or one after the other."""

    endpoint: Endpoint
    connections: int
    timeout_s: float
    #: nanoseconds from one to the next, and to the first; each is closed once it has answered. None: all at once, held
    every_ns: int | None = None
    first_ns: int = 0
