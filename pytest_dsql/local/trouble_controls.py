"""The levers for latency and faults of one cluster, as `dsql_local.latency` and `dsql_local.faults`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, final

from pytest_dsql.local.latency import profile as profiles

if TYPE_CHECKING:
    from pytest_dsql.local.client import Engine, LocalCluster
    from pytest_dsql.local.faults.fault import Fault


@final
class LatencyControl:
    """How long this cluster takes."""

    def __init__(self, engine: Engine, cluster: LocalCluster) -> None:
        self._engine = engine
        self._cluster = cluster

    @property
    def profile(self) -> str:
        """The name of the profile that holds."""
        return str(self._engine.ask_cluster("latency", self._cluster)["profile"])

    def use(self, profile: str) -> None:
        """Let a profile hold from now on, for open connections too: its name, or a TOML file. Raises UsageError.

        `none` is the engine's own speed. It is gone with the test.
        """
        profiles.load(profile)  # where the error is the caller's, not the engine's
        name = str(Path(profile).absolute()) if profile.endswith(".toml") else profile
        self._engine.ask_cluster("use_latency", self._cluster, profile=name)


@final
class Injected:
    """Faults in force, inside a `with`."""

    def __init__(self, control: FaultControl, names: list[str]) -> None:
        self._control = control
        self.names = names  #: what they are counted under

    @property
    def count(self) -> int:
        """How often they went off, altogether."""
        counts = self._control.counts()
        return sum(counts[name] for name in self.names)


@final
class FaultControl:
    """What goes wrong on this cluster. Faults are gone with the test, or with a `with` statement.

    `with dsql_local.faults(Fault.conflict(every=3)) as injected: ...`
    """

    def __init__(self, engine: Engine, cluster: LocalCluster) -> None:
        self._engine = engine
        self._cluster = cluster

    @contextmanager
    def __call__(self, *faults: Fault) -> Iterator[Injected]:
        """Have these faults in force inside the `with`; what it gives counts them, also afterwards."""
        with ExitStack() as taken_back:
            names = []
            for fault in faults:
                names.append(self.add(fault))
                taken_back.callback(self.remove, names[-1])
            yield Injected(self, names)

    def add(self, fault: Fault) -> str:
        """Put a fault in force, behind those that are; give the name that it is counted under."""
        return str(self._engine.ask_cluster("add_fault", self._cluster, fault=fault.to_json())["name"])

    def remove(self, name: str) -> int:
        """Take a fault back; give how often it went off. Raises EngineError when none of this name is in force."""
        return int(self._engine.ask_cluster("remove_fault", self._cluster, name=name)["count"])

    def load(self, file: str | Path) -> list[str]:
        """Put the faults of a TOML file in force; give their names. Raises UsageError with the line of a mistake."""
        from pytest_dsql.local.faults.file import read

        return [self.add(fault) for fault in read(Path(file))]

    def clear(self) -> None:
        """Take all faults back, those that the engine was started with too."""
        self._engine.ask_cluster("clear_faults", self._cluster)

    def counts(self) -> dict[str, int]:
        """Name -> how often it went off since the test began, for all that were in force since then."""
        counts: dict[str, int] = self._engine.ask_cluster("faults", self._cluster)["counts"]
        return counts
