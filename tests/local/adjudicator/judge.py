"""Compares answers with what the model allows, and keeps the model in step with what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from tests.local.adjudicator.model.execution import Result
from tests.local.adjudicator.model.schema import TABLES, Value
from tests.local.adjudicator.model.sessions import Database, Failure, Outcome, rows_of
from tests.local.adjudicator.model.statements import Batch, Begin, Statement, Text
from tests.local.adjudicator.targets import Answer, Target

_Rows: TypeAlias = Sequence[Sequence[Value]]


class Mismatch(AssertionError):
    """The answer is none of those that are allowed. Says everything that led to it."""


@final
@dataclass(slots=True)
class Judge:
    """Runs statements against a target and checks each answer; `history` is the script so far, for people."""

    target: Target
    database: Database
    history: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  #: that answers took
    broken: bool = False  #: an answer was wrong, so that nothing that follows can be judged
    _made_up: dict[str, str] = field(default_factory=dict)  #: what the model's unknown values turned out to be

    def run(self, session: str, statement: Statement | Batch, protocol: str = "simple") -> Answer:
        """Send a statement, check the answer, and follow it. Raises Mismatch."""
        self.history.append(f"{session} ({protocol}): {script(statement)}")
        try:
            answer = self.target.run(session, statement, protocol)
        except AssertionError as error:
            raise self._mismatch(str(error)) from error
        self.seconds.append(answer.seconds)
        self.history[-1] += f"   -> {_shown(answer)}"
        if isinstance(statement, Batch):
            self._check_batch(session, statement, answer)
        else:
            if len(answer.results) != 1:
                raise self._mismatch(f"{len(answer.results)} results for one statement")
            self._take(session, statement, answer.results[0], answer.status)
        return answer

    def disconnect(self, session: str) -> None:
        """Break a session's connection and open it anew."""
        self.history.append(f"{session}: (breaks its connection and comes back)")
        self.target.disconnect(session)
        self.database.connect(session)

    def check_contents(self) -> None:
        """Compare what is committed. Raises Mismatch."""
        for table in TABLES:
            found = self.target.contents(table.name)
            wanted = rows_of(self.database, table.name)
            if not self._same_rows(wanted, found, ordered=False):
                raise self._mismatch(f"{table.name} holds {sorted(found, key=repr)}, not {sorted(wanted, key=repr)}")

    def _check_batch(self, session: str, batch: Batch, answer: Answer) -> None:
        client = self.database.clients[session]
        implicit = client.transaction is None and not isinstance(batch.statements[0], Begin)
        if implicit:
            self.database.begin_implicit(session)
        results = list(answer.results)
        failed = False
        for statement in batch.statements:
            if not results:
                raise self._mismatch("too few results")
            result = results.pop(0)
            self._take(session, statement, result, None)
            failed = isinstance(result, Failure)
            if failed:
                break
        if results:
            raise self._mismatch("results after a failure")
        if implicit:
            self.database.end_implicit(session, failed=failed)
        if answer.status != client.status:
            raise self._mismatch(f"the session's state should be {client.status}")

    def _take(self, session: str, statement: Statement, result: Result | Failure, status: str | None) -> None:
        outcomes = self.database.outcomes(session, statement)
        for outcome in outcomes:
            if (status is None or outcome.status == status) and self._fits(outcome, result):
                outcome.apply()
                return
        allowed = " or ".join(f"{_told(outcome.answer)} [{outcome.status}]" for outcome in outcomes)
        raise self._mismatch(f"allowed was {allowed}")

    def _fits(self, outcome: Outcome, found: Result | Failure) -> bool:
        wanted = outcome.answer
        if isinstance(wanted, Failure):
            return (
                isinstance(found, Failure)
                and found.sqlstate == wanted.sqlstate
                and found.messages <= wanted.messages
                and (wanted.detail is None or found.detail == wanted.detail)
            )
        if isinstance(found, Failure) or found.tag != wanted.tag:
            return False
        if wanted.rows is None or found.rows is None:
            return wanted.rows is None and not found.rows
        return self._same_rows(wanted.rows, found.rows, ordered=wanted.ordered)

    def _same_rows(self, wanted: _Rows, found: _Rows, *, ordered: bool) -> bool:
        if len(wanted) != len(found):
            return False
        texts = [tuple(self._known(value) for value in row) for row in wanted]
        rows = [tuple(row) for row in found]
        if not ordered:
            # A row's first column tells it from others wherever there are values that only the server knows.
            texts.sort(key=_order)
            rows.sort(key=_order)
        met: dict[str, str] = {}
        for text, row in zip(texts, rows, strict=True):
            for one, other in zip(text, row, strict=True):
                if one is not None and one.startswith("?"):
                    if not isinstance(other, str) or met.setdefault(one, other) != other:
                        return False
                elif one != other:
                    return False
        self._made_up |= met
        return True

    def _known(self, value: Value) -> str | None:
        if isinstance(value, str):
            return self._made_up.get(value, value)
        return None if value is None else str(value)

    def _mismatch(self, what: str) -> Mismatch:
        self.broken = True
        return Mismatch("\n".join([what, *self.history]))


def script(statement: Statement | Batch) -> str:
    """A statement as one would type it."""
    if isinstance(statement, Batch):
        texts = "; ".join(part.sql(Text(parameters=False)) for part in statement.statements)
        return f"[pipeline] {texts}" if statement.pipelined else texts
    return statement.sql(Text(parameters=False))


def _order(row: Sequence[Value]) -> list[tuple[bool, str]]:
    return [(value is None, "" if value is None else str(value)) for value in row]


def _told(answer: Result | Failure) -> str:
    if isinstance(answer, Failure):
        return f"{answer.sqlstate} {' | '.join(sorted(answer.messages))}" + (
            f" ({answer.detail})" if answer.detail is not None else ""
        )
    return answer.tag + ("" if answer.rows is None else f" {list(answer.rows)}")


def _shown(answer: Answer) -> str:
    return f"{'; '.join(map(_told, answer.results))} [{answer.status}] {answer.seconds * 1000:.1f} ms"
