"""Writes the results file after every cell: whole or not at all, and from several processes at once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.load.cell import Cell
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.cost import Cost
from pytest_dsql.results import published, side_by_side
from pytest_dsql.results.cell import cell_dict, cost_dict
from pytest_dsql.results.mask import masked_value
from pytest_dsql.results.reader import FILE_NAME, LATEST, parse_results
from pytest_dsql.results.resumption import GoingOn, Resumption
from pytest_dsql.results.run import RunInfo, utc_now
from pytest_dsql.results.schema import SCHEMA_VERSION
from pytest_dsql.results.whole import replace_whole

LOCK_NAME: Final = ".lock"
#: What several processes of a run have used of one target adds up.
ADDED_COSTS: Final = ("cost_dpu", "cost_usd")


@final
class ResultsFile:
    """`<directory>/<run id>/results.json` of one run, and the link `<directory>/latest` to the run's directory.

    Every process of a run makes one of its own with the same run id; all add to the same file. Raises UsageError when
    the directory can't be written to, DsqlError when a later write fails; what was written before stays as it is.
    """

    def __init__(self, directory: Path | str, run: RunInfo, *, resumption: Resumption | None = None) -> None:
        self.directory: Final = Path(directory)
        self.run: Final = run
        self._resumption: Final = resumption
        self.path: Final = self.directory / run.id / FILE_NAME
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Also proves, before any cell is measured, that its figures can be kept.
            self._update(self._begin)
            self._going_on: Final = GoingOn(self.path.parent)
        except OSError as error:
            raise UsageError(
                f"can't write results to {self.path.parent}: {error.strerror or error}; "
                "choose another directory with --dsql-results"
            ) from None
        link_latest(self.directory, run.id)

    def _begin(self, content: dict[str, Any]) -> None:
        """Note that the run was resumed: once, however many processes this session has."""
        if self._resumption is not None:
            content["run"]["finished_at"] = None
            self._entry(content)

    def _entry(self, content: dict[str, Any]) -> dict[str, Any]:
        assert self._resumption is not None
        known: list[dict[str, Any]] = content["run"]["resumed"]
        for one in known:
            if one["at"] == self._resumption.at:
                return one
        entry = {
            "at": self._resumption.at,
            "machine_fingerprint": self.run.host.fingerprint,
            "taken": [],
        }
        known.append(entry)
        return entry

    def took(self, identity: str) -> None:
        """Note that a cell was not measured again after the run was resumed."""
        self._write(lambda content: self._entry(content)["taken"].append(masked_value(identity)))

    def put(self, cell: Cell | Connections | Mapping[str, Any]) -> None:
        """Add a cell, or replace the one of the same id."""
        entry = dict(cell) if isinstance(cell, Mapping) else cell_dict(cell)

        def insert(content: dict[str, Any]) -> None:
            cells = content["cells"]
            masked = masked_value(entry)
            for index, known in enumerate(cells):
                if known["id"] == masked["id"]:
                    cells[index] = masked
                    return
            cells.append(masked)

        self._write(insert)

    def put_target(self, name: str, **facts: str | float | bool | None) -> None:
        """Add what is known of a target (version, region, how it was reached), or know it better."""

        def insert(content: dict[str, Any]) -> None:
            _target(content, name).update(masked_value(facts))

        self._write(insert)

    def add_cost(self, name: str, facts: Mapping[str, str | float | bool | None]) -> None:
        """Add what this process knows of a target's cost to what the run's other processes have said.

        `cost_dpu` and `cost_usd` add up; the rest is the same for all.
        """

        def insert(content: dict[str, Any]) -> None:
            target = _target(content, name)
            added = {}
            for key in ADDED_COSTS:
                before, now = target.get(key), facts.get(key)
                if isinstance(before, int | float) and isinstance(now, int | float):
                    added[key] = before + now
            target.update(masked_value({**facts, **added}))

        self._write(insert)

    def put_costs(self, costs: Mapping[str, Cost]) -> None:
        """Replace what is known of the cost of cells, by their ids."""

        def replace(content: dict[str, Any]) -> None:
            for cell in content["cells"]:
                if cell["id"] in costs:
                    cell["cost"] = cost_dict(costs[cell["id"]])

        if costs:
            self._write(replace)

    def put_experiment(self, name: str, figures: Mapping[str, Any]) -> None:
        """Add or replace the figures of an experiment that are no cell's (how long signing a token takes)."""

        def insert(content: dict[str, Any]) -> None:
            content["experiments"][name] = masked_value(dict(figures))

        self._write(insert)

    def finish(self) -> None:
        """Note the time at which the run ended."""

        def note(content: dict[str, Any]) -> None:
            content["run"]["finished_at"] = utc_now()

        self._write(note)
        self._going_on.close()

    def _write(self, change: Callable[[dict[str, Any]], None]) -> None:
        try:
            self._update(change)
        except OSError as error:
            raise DsqlError(
                f"can't write results to {self.path}: {error.strerror or error}; what it held before is unchanged"
            ) from None

    def _update(self, change: Callable[[dict[str, Any]], None]) -> None:
        with self._locked():
            content = self._content()
            change(content)
            _derive(content)
            text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
            replace_whole(self.path, f"{text}\n".encode())

    def _content(self) -> dict[str, Any]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {
                "schema": SCHEMA_VERSION,
                "run": masked_value(self.run.as_dict()),
                "targets": [],
                "cells": [],
                "experiments": {},
            }
        return parse_results(text, str(self.path))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep the other processes of the run out. The kernel frees the lock of a process that dies."""
        descriptor = os.open(self.path.parent / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def link_latest(directory: Path, run_id: str) -> None:
    """Point `latest` to a run; where there are no links (some network and FAT file systems) do without."""
    temporary = directory / f".{LATEST}.{os.getpid()}"
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(run_id, target_is_directory=True)
        try:
            temporary.replace(directory / LATEST)
        except OSError:
            temporary.unlink(missing_ok=True)


def _target(content: dict[str, Any], name: str) -> dict[str, Any]:
    for one in content["targets"]:
        if one["name"] == name:
            known: dict[str, Any] = one
            return known
    made = {"name": name}
    content["targets"].append(made)
    return made


def _derive(content: dict[str, Any]) -> None:
    """Bring what follows from the cells up to date."""
    for name, derive in _DERIVED.items():
        figures = derive(content)
        if figures is not None:
            content["experiments"][name] = figures


#: Name of an experiment -> what computes it from the rest of the file.
_DERIVED: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]]] = {
    side_by_side.NAME: side_by_side.side_by_side,
    published.NAME: published.beside_published,
}
