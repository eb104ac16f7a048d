"""What the fixture `dsql_local` gives: one cluster of the embedded engine, for a test to set, move and trouble."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.client import Engine, LocalCluster, LocalEndpoint
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.trouble_controls import FaultControl, LatencyControl

if TYPE_CHECKING:
    from pytest_dsql.local.dpu.meter import DpuTotals


@final
class LocalControls:
    """The levers of one cluster. What a test sets with them is gone before the next test begins."""

    def __init__(self, engine: Engine, cluster: LocalCluster) -> None:
        self.engine: Final = engine  #: the engine's handle: process, certificate, keys, status
        self.cluster: Final = cluster  #: id, region and host of this process's cluster
        self.limits: Final = LimitControl(engine, cluster)
        self.clock: Final = ClockControl(engine, cluster)
        self._injections = 0
        self.latency: Final = LatencyControl(engine, cluster)
        self.faults: Final = FaultControl(engine, cluster)

    def __repr__(self) -> str:
        return f"<controls of {self.host}:{self.port}>"

    @property
    def host(self) -> str:
        """The cluster's host name; it is reached at 127.0.0.1."""
        return self.cluster.host

    @property
    def endpoints(self) -> tuple[LocalEndpoint, ...]:
        """The cluster's host names: one, or one for each of its Regions (`--dsql-set regions=...`)."""
        return self.cluster.endpoints

    @property
    def port(self) -> int:
        """Where the engine listens."""
        return self.engine.port

    def dpu(self) -> DpuTotals:
        """What the cluster has used so far, in DPU: see `DpuTotals` for how it is known."""
        return self.engine.dpu(self.cluster)

    def injections(self) -> int:
        """How many answers were held back and how many faults injected since the engine started; never falls."""
        with contextlib.suppress(EngineError):  # it has ended, and others say so
            answer = self.engine.ask_cluster("injected", self.cluster)
            self._injections = int(answer["latency"]) + int(answer["faults"])
        return self._injections

    def sleep(self) -> None:
        """Put the cluster to sleep: the next connection attempt begins to wake it, which takes the limit `wake_s`."""
        self.engine.ask_cluster("sleep", self.cluster)

    def reset(self) -> None:
        """Have the cluster behave as it did when the engine started. Open connections stay open."""
        self.engine.ask_cluster("reset", self.cluster)


@final
class LimitControl:
    """DSQL's limits, as this cluster has them."""

    def __init__(self, engine: Engine, cluster: LocalCluster) -> None:
        self._engine = engine
        self._cluster = cluster

    def get(self) -> Limits:
        """Give the limits as they are now."""
        return Limits(**self._engine.ask_cluster("limits", self._cluster)["limits"])

    def set(self, **values: float) -> Limits:
        """Change limits by name: `set(session_s=2, connections=5)`. Raises UsageError for a wrong name or value.

        They hold from now on, also for what is open already. The bucket of new connections is full again.
        """
        changed = self.get().changed(values)
        answer: dict[str, Any] = self._engine.ask_cluster("set_limits", self._cluster, limits=values)
        assert changed == Limits(**answer["limits"])
        return changed


@final
class ClockControl:
    """The cluster's clock, with which ages, lifetimes and tokens are measured."""

    def __init__(self, engine: Engine, cluster: LocalCluster) -> None:
        self._engine = engine
        self._cluster = cluster

    def now(self) -> float:
        """Give the cluster's time, in seconds since the epoch."""
        return float(self._engine.ask_cluster("clock", self._cluster)["now"])

    def move(self, seconds: float) -> float:
        """Move the clock forward, and give its time. Returns within a second: in the machine's next one.

        Sessions, transactions and tokens that were there before are so much older; a token that is signed afterwards
        is new. Raises UsageError for a negative number.
        """
        return float(self._engine.ask_cluster("move_clock", self._cluster, seconds=seconds)["now"])
