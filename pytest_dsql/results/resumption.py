"""A run that goes on after an interruption: which one, and what of it is whole."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.errors import UsageError
from pytest_dsql.results.kept import FOLDER
from pytest_dsql.results.reader import FILE_NAME, LATEST, read_results
from pytest_dsql.results.run import utc_now

_LOCK_NAME: Final = ".going-on"


@final
@dataclass(frozen=True, slots=True)
class Resumption:
    """What a session needs to know that goes on with a run."""

    run: str  #: its id
    at: str  #: when this session began, ISO 8601 in UTC
    whole: frozenset[str]  #: ids of the cells that the file has whole

    @classmethod
    def of(cls, directory: Path, name: str, *, plan: str, seed: int) -> Resumption:
        """Find the run `name` (`latest` is one, too) under the directory of results.

        Raises UsageError when there is none, when it is complete or was made with another plan or seed, and when its
        results file can't be read.
        """
        if name in (os.curdir, os.pardir) or "/" in name:
            raise UsageError(f"--dsql-resume takes a run's id, the name of a directory in {directory}, not {name!r}")
        path = directory / name / FILE_NAME
        if not path.is_file():
            runs = sorted(one.parent.name for one in directory.glob(f"*/{FILE_NAME}") if one.parent.name != LATEST)
            known = f"the last of those there: {', '.join(runs[-3:])}" if runs else "there is no run"
            raise UsageError(f"--dsql-resume: no run {name!r} in {directory} ({known})")
        results = read_results(path)
        run = results["run"]
        for what, asked in (("plan", plan), ("seed", seed)):
            if run[what] != asked:
                raise UsageError(
                    f"--dsql-resume: run {run['id']} has the {what} {run[what]!r}, and this one {asked!r}: "
                    f"say --dsql-{what} {run[what]}"
                )
        if run["finished_at"] is not None and not (path.parent / FOLDER).is_dir():
            raise UsageError(f"--dsql-resume: run {run['id']} is complete; there is nothing to resume")
        return cls(run["id"], utc_now(), frozenset(one["id"] for one in results["cells"] if _whole(one)))


def _whole(cell: dict[str, Any]) -> bool:
    return cell["interrupted"] is None


@final
class GoingOn:
    """Held by every process of a run while it goes on. The kernel frees what a process held that dies."""

    def __init__(self, run: Path) -> None:
        self._descriptor: Final = os.open(run / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    @classmethod
    def alone(cls, run: Path) -> GoingOn:
        """Hold a run that nobody holds. Raises UsageError when it still goes on."""
        held = cls(run)
        try:
            fcntl.flock(held._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise UsageError(f"--dsql-resume: run {run.resolve().name} still goes on in another process") from None
        fcntl.flock(held._descriptor, fcntl.LOCK_SH)
        return held

    def close(self) -> None:
        """Let go."""
        os.close(self._descriptor)
