"""Data that outlives engines: what is in the directory of `--data`, and who may use it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

from pytest_dsql.errors import EngineError, UsageError
from pytest_dsql.local.cleanup import forget_dead_server
from pytest_dsql.local.locks import FileLock

_IDENTITY: Final = "cluster.json"
_DATA: Final = "data"
_LOCK: Final = "lock"


@dataclass(frozen=True)
class Identity:
    """What must stay the same from engine to engine: the cluster's names, and what made its data."""

    id: str
    region: str
    template: str  #: the key of the template that it was copied from
    postgresql: str  #: the version that runs it


@final
class DataDirectory:
    """A directory for the data of one cluster; one engine at a time uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: FileLock | None = None
        self.data: Final = path / _DATA  #: PostgreSQL's data directory

    def check(self, region: str | None) -> None:
        """Raise UsageError when the directory can't be used, or holds a cluster of another region; make nothing."""
        path = self._path
        if not path.exists():
            return
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise UsageError(f"{path} is not writable for this user")
        strangers = sorted({entry.name for entry in path.iterdir()} - {_IDENTITY, _DATA, _LOCK})
        if strangers:
            raise UsageError(f"{path} holds something else ({strangers[0]}): name an empty or a new directory")
        try:
            known = self.identity()
        except EngineError as error:
            raise UsageError(str(error)) from None
        if known is not None and region is not None and region != known.region:
            raise UsageError(f"{path} holds a cluster of region {known.region}, not {region}")

    def open(self) -> None:
        """Make the directory when it is missing, and take it for this engine. Raises EngineError."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = FileLock.acquire(self._path / _LOCK, None)
        except OSError as error:
            raise EngineError(f"{self._path} can't hold the engine's data: {error.strerror}") from error
        if self._lock is None:
            raise EngineError(f"another engine is using {self._path}")
        forget_dead_server(self.data)

    def identity(self) -> Identity | None:
        """The cluster whose data is here, None when there is none yet. Raises EngineError when it can't be read."""
        path = self._path / _IDENTITY
        if not path.exists():
            return None
        try:
            return Identity(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise EngineError(f"{path} can't be read: the directory is not an engine's, or damaged") from None

    def remove_unfinished(self) -> None:
        """Remove the data of an engine that was killed before it had said that it was complete."""
        if self.data.exists():
            shutil.rmtree(self.data)

    def complete(self, identity: Identity) -> None:
        """Say that the data is complete, and whose it is."""
        text = json.dumps(asdict(identity), indent=1) + "\n"
        unfinished = self._path / f"{_DATA}/{_IDENTITY}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(self._path / _IDENTITY)

    def close(self) -> None:
        """Leave the directory to the next engine."""
        if self._lock is not None:
            self._lock.release(remove=True)
            self._lock = None
