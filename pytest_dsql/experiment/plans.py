"""The plans: how large the cells of an experiment are, per target.

`quick` fits a laptop and CI; `full` has the windows and the matrix of the published experiment (Aurora DSQL, Seoul,
2026-09: closed loop at 16, 64 and 256 connections, 120 s warm-up and 300 s window).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class Search:
    """How a plan searches for a capacity: see `experiment.search.SearchPlan`."""

    start: float
    growth: float
    precision: float
    repeats: int


@final
@dataclass(frozen=True, slots=True)
class Main:
    """The main measurement of E002: the same rates on all targets."""

    shares: tuple[float, ...]  #: of the reference rate, the lowest of the targets' explored capacities
    repeats: int
    warmup_s: float
    window_s: float
    alone: bool  #: whether the plan has time for it on one target too


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the cells of one plan on one target. Times in seconds."""

    name: str
    scale: str  #: of the order data
    warmup_s: float
    window_s: float  #: of a closed-loop cell's first look
    closed_loop_connections: tuple[int, ...]
    connection_warmup_s: float
    connection_window_s: float  #: of E003's kept and churned connections
    connection_workers: int  #: connections of that comparison
    connecting_workers: tuple[int, ...]  #: worker processes by which the rate of new connections is compared
    bursts: tuple[int, ...]  #: connections asked for at once
    sequential: int  #: sequential connections
    signatures: int  #: tokens signed one after the other
    pilot_rates: tuple[float, ...]  #: the pilot of E002, requests per second
    pilot_warmup_s: float
    pilot_window_s: float
    open_loop_rates: tuple[float, ...]  #: the ladder of E002, requests per second
    open_loop_connections: int
    main: Main
    capacity: Search | None  #: None: the plan has no time for a search
    pool_tasks: tuple[int, ...]  #: tasks of an application that share a pool
    pool_sizes: tuple[int, ...]
    pool_window_s: float
    contention_connections: tuple[int, ...]
    contention_window_s: float
    functions: tuple[int, ...]  #: connections that insert one row after the other, as functions of Lambda do
    functions_warmup_s: float
    functions_window_s: float  #: in the full plan about 1,000 rows of each at the published rate
    connect_rate: float  #: new connections asked for per second, for a while
    connect_rate_s: float
    soak_s: float | None  #: None: the plan has no time for it
    beside_window_s: float | None  #: of cells beside which something happens; None: the plan has no time for them


#: On a laptop the engine, the generator and PostgreSQL share the cores: few connections, so that a cell says something
#: about each of them and not about their queue.
_QUICK_LOCAL: Final = Plan(
    name="quick",
    scale="quick",
    warmup_s=1.0,
    window_s=12.0,
    closed_loop_connections=(4,),
    connection_warmup_s=0.5,
    connection_window_s=3.0,
    connection_workers=4,
    connecting_workers=(1, 2),
    bursts=(1000,),
    sequential=100,
    signatures=50,
    pilot_rates=(100.0,),
    pilot_warmup_s=1.0,
    pilot_window_s=12.0,
    open_loop_rates=(),
    open_loop_connections=32,
    main=Main(shares=(0.5, 1.0, 1.2), repeats=3, warmup_s=0.5, window_s=4.0, alone=False),
    capacity=None,
    pool_tasks=(16, 64),
    pool_sizes=(16,),
    pool_window_s=1.0,
    contention_connections=(8,),
    contention_window_s=1.5,
    functions=(1, 2, 4),
    functions_warmup_s=0.3,
    functions_window_s=1.0,
    connect_rate=50.0,
    connect_rate_s=1.0,
    soak_s=None,
    beside_window_s=None,
)

_QUICK_ELSEWHERE: Final = Plan(
    name="quick",
    scale="quick",
    warmup_s=2.0,
    window_s=10.0,
    closed_loop_connections=(4, 16),
    connection_warmup_s=1.0,
    connection_window_s=5.0,
    connection_workers=4,
    connecting_workers=(1, 2),
    bursts=(100,),
    sequential=20,
    signatures=50,
    pilot_rates=(100.0,),
    pilot_warmup_s=2.0,
    pilot_window_s=12.0,
    open_loop_rates=(200.0,),
    open_loop_connections=64,
    main=Main(shares=(0.5, 1.0, 1.2), repeats=3, warmup_s=1.0, window_s=6.0, alone=False),
    capacity=None,
    pool_tasks=(16, 64, 256),
    pool_sizes=(16, 64),
    pool_window_s=3.0,
    contention_connections=(16,),
    contention_window_s=5.0,
    functions=(1, 2, 4, 8),
    functions_warmup_s=1.0,
    functions_window_s=5.0,
    connect_rate=50.0,
    connect_rate_s=2.0,
    soak_s=None,
    beside_window_s=None,
)

_FULL: Final = Plan(
    name="full",
    scale="full",
    warmup_s=120.0,
    window_s=300.0,
    closed_loop_connections=(16, 64, 256),
    connection_warmup_s=5.0,
    connection_window_s=30.0,
    connection_workers=16,
    connecting_workers=(1, 2, 4, 8),
    bursts=(500, 1000),
    sequential=100,
    signatures=50,
    pilot_rates=(100.0, 400.0, 1_600.0),
    pilot_warmup_s=60.0,
    pilot_window_s=120.0,
    open_loop_rates=(2_400.0, 3_600.0, 5_400.0, 6_750.0, 8_100.0),
    open_loop_connections=256,
    main=Main(shares=(0.5, 1.0, 1.2), repeats=3, warmup_s=120.0, window_s=300.0, alone=True),
    capacity=Search(start=1_600.0, growth=1.25, precision=0.05, repeats=3),
    pool_tasks=(16, 64, 256, 1_024),
    pool_sizes=(16, 64, 128),
    pool_window_s=30.0,
    contention_connections=(16, 64, 256),
    contention_window_s=60.0,
    functions=(1, 2, 5, 10, 20, 50),
    functions_warmup_s=2.0,
    functions_window_s=10.0,
    connect_rate=1_000.0,
    connect_rate_s=60.0,
    soak_s=4 * 3600.0,
    beside_window_s=300.0,
)

#: Everything but the embedded engine is elsewhere.
_LOCAL: Final[Mapping[str, Plan]] = {"quick": _QUICK_LOCAL, "full": _FULL}
_ELSEWHERE: Final[Mapping[str, Plan]] = {"quick": _QUICK_ELSEWHERE, "full": _FULL}


def plan_for(plan: str, target: str) -> Plan:
    """Return the sizes of `plan` on `target`. Raises KeyError for names that Settings would not let through."""
    return (_LOCAL if target == "local" else _ELSEWHERE)[plan]
