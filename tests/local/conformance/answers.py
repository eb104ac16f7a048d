"""What a server answered: results as text, and what was seen of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from psycopg import pq

from pytest_dsql.masking import mask

_FAILED: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.NONFATAL_ERROR)


@final
@dataclass(slots=True)
class Answer:
    """One result: a success with its tag and rows, or an error with its fields; all values as text."""

    tag: str | None = None
    columns: Sequence[str] | None = None
    rows: Sequence[Sequence[str | None]] | None = None
    sqlstate: str | None = None  #: of an error; "" where the server never said one
    message: str | None = None
    detail: str | None = None
    hint: str | None = None
    empty: bool = False
    aborted: bool = False  #: skipped, because something before it in the pipeline failed

    @property
    def failed(self) -> bool:
        """Whether it is an error."""
        return self.sqlstate is not None

    @property
    def is_oc001(self) -> bool:
        """Whether the catalog had changed."""
        return self.failed and "(OC001)" in (self.message or "")

    def shown(self) -> dict[str, Any]:
        """What a person wants to see of it."""
        names = ("tag", "columns", "rows", "sqlstate", "message", "detail", "hint", "empty", "aborted")
        return {name: value for name in names if (value := getattr(self, name)) not in (None, False)}


@final
@dataclass(slots=True)
class Observation:
    """What was seen of one step."""

    answers: Sequence[Answer] = ()
    closed: str | None = None  #: the connection was refused or closed, with these words
    blocked: bool = False  #: no answer came in time
    transaction: str = ""  #: `idle`, `in_transaction`, `failed`
    ms: float = 0.0

    @property
    def error(self) -> Answer | None:
        """The first error among the answers."""
        return next((answer for answer in self.answers if answer.failed), None)

    @property
    def cell(self) -> str | None:
        """The first value of the last answer's first row."""
        rows = self.answers[-1].rows if self.answers else None
        return rows[0][0] if rows and rows[0] else None

    def shown(self) -> object:
        """What a person wants to see of it."""
        if self.blocked:
            return "nothing, within the time allowed"
        if self.closed is not None:
            return {"closed": self.closed}
        return [answer.shown() for answer in self.answers]


def failure(message: str) -> Answer:
    """An error that no server said."""
    return Answer(sqlstate="", message=message)


def answer_of(result: pq.abc.PGresult) -> Answer:
    """Read one of libpq's results."""
    if result.status in _FAILED:
        field_of = pq.DiagnosticField
        said = {
            name: found.decode("utf-8", "replace") if (found := result.error_field(place)) is not None else None
            for name, place in (
                ("sqlstate", field_of.SQLSTATE),
                ("message", field_of.MESSAGE_PRIMARY),
                ("detail", field_of.MESSAGE_DETAIL),
                ("hint", field_of.MESSAGE_HINT),
            )
        }
        message = said["message"] or result.error_message.decode("utf-8", "replace").strip()
        return Answer(sqlstate=said["sqlstate"] or "", message=mask(message), detail=said["detail"], hint=said["hint"])
    if result.status == pq.ExecStatus.EMPTY_QUERY:
        return Answer(tag="", empty=True)
    answer = Answer(tag=(result.command_status or b"").decode())
    if result.status == pq.ExecStatus.TUPLES_OK:
        answer.columns = [(result.fname(place) or b"").decode() for place in range(result.nfields)]
        answer.rows = [
            [
                None if (value := result.get_value(row, place)) is None else value.decode("utf-8", "replace")
                for place in range(result.nfields)
            ]
            for row in range(result.ntuples)
        ]
    return answer
