"""What one cell measured: raw samples per transaction, connections, and the health of the generator.

Plain data, made by the generator and read by verdicts, results and reports. Times are integers of nanoseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypeAlias, final

if TYPE_CHECKING:
    from pytest_dsql.load.cost import Cost
    from pytest_dsql.load.digest import CountedCell, Digest

Kind: TypeAlias = Literal["read", "write"]


class Outcome(IntEnum):
    """How a request ended. The outcomes of a cell add up to its arrivals."""

    OK = 0  #: committed at the first attempt
    OK_RETRIED = 1  #: committed after retries
    REJECTED = 2  #: a business "no", rolled back
    FAILED = 3  #: a technical failure after the last attempt
    SKIPPED = 4  #: open loop: not started within the deadline
    DROPPED = 5  #: open loop: over a bound of requests in flight; the driver has none, a request waits or is skipped
    AMBIGUOUS = 6  #: the connection died during COMMIT and the receipt could not tell
    CANCELLED = 7  #: still in flight when the window's drain ended


@final
@dataclass(slots=True)
class Samples:
    """The requests of one transaction in one cell, in order of intended start. All arrays have the same length.

    latency = wait + service + backoff, from the intended start to the end of the last attempt.
    """

    name: str
    kind: Kind
    intended_ns: array[int] = field(default_factory=lambda: array("q"))  #: since the window's start
    latency_ns: array[int] = field(default_factory=lambda: array("q"))
    wait_ns: array[int] = field(default_factory=lambda: array("q"))  #: queueing for a connection
    service_ns: array[int] = field(default_factory=lambda: array("q"))  #: in the database, all attempts
    backoff_ns: array[int] = field(default_factory=lambda: array("q"))  #: between attempts
    outcome: array[int] = field(default_factory=lambda: array("B"))  #: values of `Outcome`
    attempts: array[int] = field(default_factory=lambda: array("H"))
    errors: dict[str, int] = field(default_factory=dict)  #: SQLSTATE (or "connection") -> failed attempts
    messages: dict[str, str] = field(default_factory=dict)  #: SQLSTATE -> one masked message, for the report

    def __len__(self) -> int:
        return len(self.outcome)

    def count(self, *outcomes: Outcome) -> int:
        """Return how many requests ended in one of `outcomes`."""
        return sum(self.outcome.count(int(one)) for one in outcomes)


@final
@dataclass(frozen=True, slots=True)
class Distribution:
    """A few order statistics of one quantity, in nanoseconds; exact, of `n` values."""

    n: int
    p50: int
    p95: int
    p99: int
    p999: int
    max: int
    mean: float


@final
@dataclass(frozen=True, slots=True)
class GeneratorHealth:
    """How near the generator was to its own limits while it measured; the worst worker counts."""

    cpu: float  #: share of one core used by the busiest worker during the window, 0..1
    runqueue_wait: float | None  #: share of the window a worker waited for a core (Linux), None where unknown
    loop_lag_p50_ns: int  #: how long answers waited for the event loop, at most: the uncertainty of a time stamp
    loop_lag_p99_ns: int
    loop_lag_max_ns: int
    schedule_lag_p99_ns: int | None  #: open loop: how late requests were sent because of the generator
    connection_wait_p99_ns: int  #: how long requests queued for a connection
    gc_pause_max_ns: int = 0
    connection_wait_share: float = 0.0  #: of the requests: those that found no connection free
    clock_resolution_ns: int = 0  #: the smallest step in which the clock of the time stamps was seen to advance
    own_lag_p999_ns: int = 0  #: of loop lag and schedule lag the longer one, for limits that one in a thousand may pass
    connection_wait_p999_ns: int = 0


@final
@dataclass(frozen=True, slots=True)
class EngineWork:
    """What the embedded engine had of this machine's cores, all its processes together, in nanoseconds.

    From the beginning of the warm-up to the end of the window.
    """

    elapsed_ns: int
    waited_ns: int  #: in the run queue
    cpu_ns: int
    others_ns: int  #: CPU of processes that belong neither to the engine nor to the run, and what the hypervisor took
    busy_ns: int  #: CPU of all processes, likewise
    gateway_waited_ns: int = 0  #: of the waiting, that of the one process through which every statement goes

    @property
    def starved(self) -> float:
        """How many of its processes, on average, stood waiting for a core because of others.

        These are to blame for a part of the wait: their share of what kept the cores busy.
        """
        return self.waited_ns / self.elapsed_ns * self.others_share if self.elapsed_ns else 0.0

    @property
    def gateway_starved(self) -> float:
        """The share of the time in which the gateway stood waiting for a core because of others."""
        return self.gateway_waited_ns / self.elapsed_ns * self.others_share if self.elapsed_ns else 0.0

    @property
    def others_share(self) -> float:
        """The part that others had of what kept the cores busy."""
        return self.others_ns / self.busy_ns if self.busy_ns else 0.0

    def plus(self, other: EngineWork) -> EngineWork:
        """Return this and another window together."""
        return EngineWork(
            self.elapsed_ns + other.elapsed_ns,
            self.waited_ns + other.waited_ns,
            self.cpu_ns + other.cpu_ns,
            self.others_ns + other.others_ns,
            self.busy_ns + other.busy_ns,
            self.gateway_waited_ns + other.gateway_waited_ns,
        )


@final
@dataclass(slots=True)
class ConnectStats:
    """Connections made in a cell: how many, how long each phase took, which were refused."""

    attempted: int = 0
    succeeded: int = 0
    refused: dict[str, int] = field(default_factory=dict)  #: SQLSTATE (or "connection") -> attempts refused
    #: phase (resolve, tcp, tls, authentication, startup, total) -> nanoseconds of each connection made
    phases_ns: dict[str, array[int]] = field(default_factory=dict)
    client_cpu_ns: int = 0  #: CPU time of the generator's processes spent while connecting
    client_waited_ns: int = 0  #: how long they waited for a core meanwhile, where the kernel says
    elapsed_ns: int = 0  #: from the first attempt to the last one's end
    tokens_signed: int = 0  #: signatures made, over all processes
    memory_bytes: int | None = None  #: by which the generator's processes grew for connections that were held
    messages: dict[str, str] = field(default_factory=dict)  #: SQLSTATE -> one masked message, for the report
    cost: Cost | None = None  #: of connections that are a cell by themselves; None when nobody knows


@final
@dataclass(frozen=True, slots=True)
class Arrival:
    """How requests arrive."""

    kind: Literal["closed", "churn", "pooled", "poisson", "constant"]
    rate: float | None = None  #: per second, open loop only
    tasks: int | None = None  #: that share the connections, of a pool only


@final
@dataclass(slots=True)
class Measurement:
    """What one cell measured in its window, all workers together."""

    arrival: Arrival
    connections: int
    workers: int
    warmup_s: float
    duration_s: float  #: the window's actual length
    samples: dict[str, Samples]  #: empty where requests are only counted
    generator: GeneratorHealth
    connect: ConnectStats
    rtt_ns: Distribution | None  #: `SELECT 1` on an idle connection before the cell
    committed: Mapping[str, int]  #: transaction -> committed, warm-up and drain included (for the invariants)
    ambiguous: Mapping[str, int]  #: likewise
    access: str = "uniform"  #: how keys were drawn, in words
    max_attempts: int = 3  #: of one request
    pipeline: bool = False  #: whether BEGIN went with the first statements
    #: several hosts: how well their clocks were known to each other at worst; None when all workers ran on one
    clock_uncertainty_ns: int | None = None
    look: int = 1  #: how many planned windows the cell has had: 1, 2 or 4 make looks 1, 2, 3
    interrupted: str | None = None  #: why the cell ended early (a worker died, SIGINT), None when it did not
    simulated: bool = False  #: whether the target injected latency or faults meanwhile
    cost: Cost | None = None  #: what it has used of what is paid for; None when nobody knows
    #: what the embedded engine had of this machine; None of any other database, and where the system does not tell
    engine: EngineWork | None = None
    #: what a cell has in place of samples whose requests are only counted: a long one, one from several hosts
    counted: CountedCell | None = None
    #: how many requests of the window committed after it had closed, less those of the warm-up that did so in it
    spill: int = 0

    @property
    def requests(self) -> Mapping[str, Samples | Digest]:
        """The requests of the window by transaction: kept, or counted."""
        return self.samples if self.counted is None else self.counted.digests

    @property
    def arrivals(self) -> int:
        """Requests that belong to the window."""
        return sum(len(one) for one in self.requests.values())
