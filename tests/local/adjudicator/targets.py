"""What interleavings are run against: something with sessions that answers statements. Here: the model's own kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from tests.local.adjudicator.model.execution import Result
from tests.local.adjudicator.model.schema import Value
from tests.local.adjudicator.model.sessions import Database, Failure, Outcome
from tests.local.adjudicator.model.statements import Batch, Begin, Statement

#: How a statement is sent: in a simple query, with parameters, or as a prepared statement that is kept.
PROTOCOLS: Final = ("simple", "extended", "prepared")


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What a client was answered: one entry per statement up to the first failure, texts for values."""

    results: tuple[Result | Failure, ...]
    status: str  #: I, T or E
    seconds: float = 0.0


class Target(Protocol):
    """Has the model's tables."""

    def reset(self, sessions: Sequence[str]) -> None:
        """Hold the initial rows and nothing else, and have these sessions, idle."""

    def run(self, session: str, statement: Statement | Batch, protocol: str) -> Answer:
        """Send a statement and wait for its answer."""

    def disconnect(self, session: str) -> None:
        """Break a session's connection without a word, and open it anew."""

    def contents(self, table: str) -> list[tuple[str | None, ...]]:
        """What a new transaction sees in a table."""


class Reference:
    """A target in memory: the model, answering instead of judging. Its subclasses have a fault each."""

    database_class: type[Database] = Database

    def __init__(self) -> None:
        self.database = self.database_class.initial()

    def reset(self, sessions: Sequence[str]) -> None:
        self.database = self.database_class.initial()
        for name in sessions:
            self.database.connect(name)

    def run(self, session: str, statement: Statement | Batch, protocol: str) -> Answer:
        database = self.database
        if not isinstance(statement, Batch):
            outcome = self.choose(session, statement)
            outcome.apply()
            return Answer((_as_text(outcome.answer),), outcome.status)
        implicit = database.clients[session].transaction is None and not isinstance(statement.statements[0], Begin)
        if implicit:
            database.begin_implicit(session)
        results: list[Result | Failure] = []
        for part in statement.statements:
            outcome = self.choose(session, part)
            outcome.apply()
            results.append(_as_text(outcome.answer))
            if isinstance(outcome.answer, Failure):
                break
        if implicit:
            database.end_implicit(session, failed=isinstance(results[-1], Failure))
        return Answer(tuple(results), database.clients[session].status)

    def choose(self, session: str, statement: Statement) -> Outcome:
        """Decide what to answer."""
        return self.database.outcomes(session, statement)[0]

    def disconnect(self, session: str) -> None:
        self.database.connect(session)

    def contents(self, table: str) -> list[tuple[str | None, ...]]:
        from tests.local.adjudicator.model.sessions import rows_of

        return [tuple(map(_text, row)) for row in rows_of(self.database, table)]


def _as_text(answer: Result | Failure) -> Result | Failure:
    if isinstance(answer, Failure) or answer.rows is None:
        return answer
    return Result(answer.tag, tuple(tuple(map(_text, row)) for row in answer.rows))


def _text(value: Value) -> str | None:
    return None if value is None else str(value)
