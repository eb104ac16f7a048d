"""The cases as data: read from their files, and refused when a key in them means nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

CASES: Final = Path(__file__).parent / "cases"

Protocol: TypeAlias = Literal["simple", "extended"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("simple", "extended")

#: What an answer must be: the keys of `comparing.KEYS`. An empty one is content with any success.
Expectation: TypeAlias = "Mapping[str, Any]"

_EVIDENCE: Final = re.compile(r"(live|docs) 20\d\d(-(0[1-9]|1[0-2]))?|inferred")


class BadCase(Exception):
    """A case that can't be meant, with what is wrong with it."""


@final
@dataclass(frozen=True, slots=True)
class Preparation:
    """A statement of the setup or the cleanup."""

    sql: str
    wait_job: bool = False  #: it answers the id of a job, whose end is awaited


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One thing that one session does, and what it must be answered."""

    session: str = "a"
    sql: str | None = None
    params: Sequence[str | None] | None = None
    protocol: Protocol | None = None  #: for this step only
    prepare: str | None = None  #: the name under which `sql` is prepared
    execute: str | None = None  #: the prepared statement that is executed
    pipeline: Sequence[Mapping[str, Any]] | None = None
    copy_in: str | None = None
    wait_job_from: int | None = None  #: the step that answered the job's id
    disconnect: bool = False
    connect: str = ""  #: more connection parameters, for the session's first step
    retry_oc001: bool = False  #: repeat the statement when the catalog has changed
    max_ms: int | None = None
    expect: Expectation | None = None

    @property
    def free(self) -> bool:
        """Whether either protocol may carry the step."""
        fixed = (self.prepare, self.protocol, self.params, self.pipeline)
        return self.sql is not None and all(one is None for one in fixed)

    def describe(self) -> str:
        """What the step does, in one line."""
        if self.wait_job_from is not None:
            return "CALL sys.wait_for_job"
        if self.pipeline is not None:
            return "pipeline of " + "; ".join(str(one.get("sql", "Sync")) for one in self.pipeline)
        return self.sql or (f"execute {self.execute}" if self.execute else "disconnect")


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One fact about DSQL, as steps of one or more sessions."""

    id: str
    group: str  #: the name of its file
    title: str
    evidence: str  #: `live YYYY-MM`, `docs YYYY-MM`, `inferred`
    steps: Sequence[Step]
    setup: Sequence[Preparation] = ()
    cleanup: Sequence[Preparation] = ()
    since: date | None = None  #: the day on which the behaviour came to DSQL
    protocol: Protocol | None = None  #: the only one to run it with
    one_of: Sequence[Mapping[int, Expectation]] = ()  #: alternatives, each by the step that it changes

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """Those with which the case says something."""
        if self.protocol is not None:
            return (self.protocol,)
        return PROTOCOLS if any(step.free for step in self.steps) else ("simple",)

    @property
    def mentions_oc001(self) -> bool:
        """Whether an answer about a changed catalog belongs to the case."""
        return "(OC001" in json.dumps([[step.expect for step in self.steps], list(self.one_of)]).replace("\\", "")


def read_cases(paths: Sequence[Path] = (CASES,)) -> list[Case]:
    """Return the cases of these files and directories. Raises BadCase."""
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    cases: dict[str, Case] = {}
    for file in files:
        for case in _read(file):
            if case.id in cases:
                raise BadCase(f"{case.id}: there are two cases of this id")
            cases[case.id] = case
    return list(cases.values())


def _read(file: Path) -> Iterator[Case]:
    for entry in json.loads(file.read_text(encoding="utf-8")):
        yield _case(entry, file.stem)


def _case(entry: dict[str, Any], group: str) -> Case:
    identity = str(entry.get("id"))
    _known(entry, Case, identity)
    if not _EVIDENCE.fullmatch(entry["evidence"]):
        raise BadCase(f"{identity}: evidence {entry['evidence']!r}")
    if entry.get("protocol") not in (None, *PROTOCOLS):
        raise BadCase(f"{identity}: protocol {entry['protocol']!r}")
    steps = []
    for step in entry["steps"]:
        _known(step, Step, identity)
        steps.append(Step(**step))
    return Case(
        id=identity,
        group=group,
        title=entry["title"],
        evidence=entry["evidence"],
        steps=tuple(steps),
        setup=tuple(map(_preparation, entry.get("setup", ()))),
        cleanup=tuple(map(_preparation, entry.get("cleanup", ()))),
        since=date.fromisoformat(entry["since"]) if "since" in entry else None,
        protocol=entry.get("protocol"),
        one_of=tuple({int(place): want for place, want in one.items()} for one in entry.get("one_of", ())),
    )


def _known(entry: Mapping[str, Any], kind: type[Case | Step], identity: str) -> None:
    unknown = set(entry) - {one.name for one in fields(kind)}
    if unknown:
        raise BadCase(f"{identity}: unknown keys {sorted(unknown)}")


def _preparation(entry: str | dict[str, Any]) -> Preparation:
    return Preparation(entry) if isinstance(entry, str) else Preparation(**entry)
