"""What an engine is started with that makes it slower or less reliable than it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from pytest_dsql.local.faults.fault import Fault
from pytest_dsql.local.latency.profile import NONE, OFF, Profile


@final
@dataclass(frozen=True, slots=True)
class Trouble:
    """A latency profile and faults, and the seed of everything random about them."""

    seed: int = 1
    latency: Profile = OFF
    faults: tuple[Fault, ...] = ()


NO_TROUBLE: Final = Trouble()


def read_trouble(seed: int, latency: str, faults: Path | None) -> Trouble:
    """Read the profile of this name or file, and the file of faults. Raises UsageError."""
    if latency == NONE and faults is None:
        return Trouble(seed)
    from pytest_dsql.local.faults.file import read
    from pytest_dsql.local.latency.profile import load

    return Trouble(seed, load(latency), tuple(read(faults)) if faults is not None else ())
