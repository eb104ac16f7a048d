"""A lane: one cluster's worth of cases, run one after the other with either protocol."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tests.local.conformance.answers import Answer, Observation, failure
from tests.local.conformance.case import Case, Preparation, Protocol, Step
from tests.local.conformance.comparing import Difference, differences
from tests.local.conformance.texts import expanded
from tests.local.conformance.wire import Blocked, Closed, Wire

#: How often a case is run again because a change of the catalog that is not its own came in between.
_RERUNS: Final = 3
#: How often a statement is repeated when the catalog has changed.
_REPEATS: Final = 6
_PAUSE_S: Final = 0.02
#: A statement of the setup may take longer than a step.
_SETUP_S: Final = 20.0
_LONGEST_SHOWN: Final = 400
_JOB_ID: Final = re.compile(r"[0-9a-z-]+")

#: What drops everything that cases may have left: all they make is called `cf_...`.
_LEFT: Final = r"""
SELECT format('DROP %s IF EXISTS %I.%I CASCADE', kind, nspname, relname)
FROM (VALUES (1, 'v', 'VIEW'), (2, 'r', 'TABLE'), (3, 'S', 'SEQUENCE')) AS kinds(place, relkind, kind)
JOIN pg_class c ON c.relkind::text = kinds.relkind JOIN pg_namespace n ON n.oid = relnamespace
WHERE relname LIKE 'cf\_%'
UNION ALL
SELECT format('DROP FUNCTION IF EXISTS %I.%I', nspname, proname)
FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE proname LIKE 'cf\_%'
UNION ALL
SELECT format('DROP DOMAIN IF EXISTS %I.%I', nspname, typname)
FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace WHERE typtype = 'd' AND typname LIKE 'cf\_%'
UNION ALL
SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', nspname) FROM pg_namespace WHERE nspname LIKE 'cf\_%'
UNION ALL
SELECT format('DROP ROLE IF EXISTS %I', rolname) FROM pg_roles WHERE rolname LIKE 'cf\_%'
"""


class _SetupFailed(Exception):
    """The setup of a case did not succeed."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case with one protocol."""

    case: Case
    protocol: Protocol
    wrong: Sequence[str]  #: a line for each difference; none: it passed
    reruns: int
    ms: float

    @property
    def passed(self) -> bool:
        """Whether the case holds."""
        return not self.wrong


@final
class Lane:
    """Runs cases on one cluster. `conninfo` gives the connection parameters, asked for every connection."""

    def __init__(self, conninfo: Callable[[], str], *, step_s: float = 10.0, job_s: float = 150.0) -> None:
        self._conninfo = conninfo
        self._step_s = step_s
        self._job_s = job_s
        self._admin: Wire | None = None

    def close(self) -> None:
        """Give up the lane's own connection."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def sweep(self) -> None:
        """Drop what cases left behind, also those of an earlier run that was interrupted."""
        rows = self._administer(_LEFT, self._step_s)[-1].rows or ()
        self._clean(Preparation(row[0]) for row in rows if row[0])

    def run(self, case: Case, protocol: Protocol) -> Outcome:
        """Run a case with one protocol. Never raises for what the server does."""
        began = time.monotonic()
        wrong: list[str] = []
        reruns = -1
        stray = True
        while stray and reruns < _RERUNS:
            reruns += 1
            try:
                history = self._run_once(case, protocol)
            except _SetupFailed as error:
                wrong = [f"{case.id} ({case.title}), evidence {case.evidence}, {protocol}: setup: {error}"]
                break
            wrong = [_line(case, protocol, one, history) for one in differences(case, history)]
            changed = any(answer.is_oc001 for seen in history for answer in seen.answers)
            stray = bool(wrong) and changed and not case.mentions_oc001
        return Outcome(case, protocol, wrong, reruns, (time.monotonic() - began) * 1000)

    def _run_once(self, case: Case, protocol: Protocol) -> list[Observation]:
        self._clean(case.cleanup)
        self._set_up(case.setup)
        wires: dict[str, Wire] = {}
        history: list[Observation] = []
        try:
            for step in case.steps:
                history.append(self._step(step, wires, history, protocol))
                if history[-1].blocked:
                    break
        finally:
            for wire in wires.values():
                wire.close()
            self._clean(case.cleanup)
        return history

    def _step(
        self, step: Step, wires: dict[str, Wire], history: Sequence[Observation], protocol: Protocol
    ) -> Observation:
        seen = Observation()
        began = time.monotonic()
        try:
            if step.disconnect:
                wires.pop(step.session).close()
                return Observation(answers=[Answer(tag="")])
            if step.session not in wires:
                wires[step.session] = Wire(f"{self._conninfo()} {step.connect}", self._step_s)
            wire = wires[step.session]
            for _ in range(_REPEATS if step.retry_oc001 else 1):
                began = time.monotonic()
                seen.answers = self._answers(step, wire, history, protocol)
                error = seen.error
                if error is None or not error.is_oc001:
                    break
                time.sleep(_PAUSE_S)
            seen.transaction = wire.transaction
        except Blocked:
            seen.blocked = True
        except Closed as closed:
            seen.closed = str(closed)
            seen.answers = [closed.answer] if closed.answer is not None else []
            if step.session in wires:
                wires.pop(step.session).close()
        seen.ms = (time.monotonic() - began) * 1000
        return seen

    def _answers(self, step: Step, wire: Wire, history: Sequence[Observation], protocol: Protocol) -> Sequence[Answer]:
        params = step.params and [None if one is None else expanded(str(one), history) for one in step.params]
        if step.wait_job_from is not None:
            job = history[step.wait_job_from].cell or ""
            if not _JOB_ID.fullmatch(job):
                return [failure(f"step {step.wait_job_from} answered no job id")]
            return wire.run(f"CALL sys.wait_for_job('{job}')", timeout_s=self._job_s)
        if step.pipeline is not None:
            return wire.pipeline([{**one, "sql": expanded(one.get("sql", ""))} for one in step.pipeline])
        if step.execute is not None:
            return wire.execute(step.execute, params)
        sql = expanded(step.sql or "", history)
        if step.prepare is not None:
            return wire.prepare(step.prepare, sql)
        extended = (step.protocol or protocol) == "extended"
        return wire.run(sql, params, extended=extended, copy_in=step.copy_in)

    def _set_up(self, statements: Iterable[Preparation]) -> None:
        for statement in statements:
            answers = self._administer(expanded(statement.sql), max(self._step_s, _SETUP_S))
            error = next((answer for answer in answers if answer.failed), None)
            if error is None and statement.wait_job:
                rows = answers[-1].rows
                if not rows:
                    raise _SetupFailed(f"no job id from {statement.sql[:120]}")
                answers = self._administer(f"CALL sys.wait_for_job('{rows[0][0]}')", self._job_s)
                error = next((answer for answer in answers if answer.failed), None)
            if error is not None:
                raise _SetupFailed(f"{statement.sql[:120]} -> {error.sqlstate} {error.message}")

    def _clean(self, statements: Iterable[Preparation]) -> None:
        for statement in statements:
            self._administer(expanded(statement.sql), max(self._step_s, _SETUP_S))

    def _administer(self, sql: str, timeout_s: float) -> Sequence[Answer]:
        """Run a statement on the lane's own connection, repeated when it loses against another transaction."""
        answers: Sequence[Answer] = ()
        for repeat in range(_REPEATS):
            try:
                if self._admin is None:
                    self._admin = Wire(self._conninfo(), self._step_s)
                answers = self._admin.run(sql, timeout_s=timeout_s)
            except (Blocked, Closed) as error:
                self.close()
                # An idle connection may be cut at any time; a new one tells whether that was all.
                answers = [failure(str(error) or "no answer in time")]
                if isinstance(error, Blocked):
                    break
                continue
            if not any(answer.sqlstate == "40001" for answer in answers):
                break
            time.sleep(_PAUSE_S * (repeat + 1))
        return answers


def _line(case: Case, protocol: Protocol, difference: Difference, history: Sequence[Observation]) -> str:
    place, why, want = difference
    step = case.steps[place]
    got = history[place].shown() if place < len(history) else None
    return (
        f"{case.id} ({case.title}), evidence {case.evidence}, {protocol}, step {place} [{step.session}]"
        f" {_short(step.describe())}: {why}; expected {_short(want)}; got {_short(got)}"
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
