"""What a transaction has done so far, and how its writes could be done again. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.books import Keys
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import Text
from pytest_dsql.local.gateway.run import NO_PARAMETERS, NOTHING_BOUND, Run, bound_of, own_execution

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.group import Group
    from pytest_dsql.local.gateway.statements import Plan

#: SQLSTATEs with which PostgreSQL says that a rival was there first, or is in the way; the statement may be genuine.
CONTESTED: Final = frozenset({b"55P03", b"40001", b"40P01", b"23505", b"23503"})
#: Of these, the ones that say that a rival has committed, if the statement succeeds on the transaction's own snapshot.
LOST: Final = frozenset({b"40001", b"23505", b"23503"})
#: For a statement without a transaction: its snapshot is as new as can be, so what is violated is violated.
IN_THE_WAY: Final = frozenset({b"55P03", b"40001", b"40P01"})
CANCELLED: Final = b"57014"
_NOT_GIVEN: Final = b"55P03"

#: Statements whose tags tell how many rows they wrote or locked; a SELECT may write in a WITH query as well.
_COUNTED: Final = frozenset({"InsertStmt", "UpdateStmt", "DeleteStmt", "CopyStmt"})
_NO_KEYS: Final[frozenset[str]] = frozenset()


class State(Enum):
    """Where a transaction's writes are."""

    PHYSICAL = "in the tables"
    SANDBOX = "in the sandbox"
    PARKED = "in the log only"


@final
@dataclass(slots=True)  # not frozen: one is made for each statement that writes, and freezing takes half of that
class Entry:
    """One statement of the log, that has changed something. It stays as it is made."""

    sql: bytes  #: as it was sent to the tables, before anything of ours was added
    texts: Texts | None  #: None: a statement that runs alike everywhere (SET, DDL)
    types: bytes  #: of its Parse message: the parameters' types
    bound: bytes  #: of its Bind message: what comes behind the names
    catalog: bool = False  #: DDL
    captured: tuple[bytes, ...] | None = None  #: rows that must be written as they are
    copied: bytes | None = None  #: the data of COPY FROM STDIN
    locked: frozenset[str] = frozenset()  #: keys of the rows that it locked FOR UPDATE
    shared: frozenset[str] = frozenset()  #: keys of the rows that it locked FOR KEY SHARE
    rows: int | None = None  #: how many it wrote or locked, where its tag tells

    @property
    def cascades(self) -> bool:
        """Whether foreign keys may have written more rows than it names."""
        tables = () if self.texts is None else self.texts.writes
        return any(key.on_delete in "cnd" or key.on_update in "cnd" for table in tables for key in table.referenced)

    def and_then(self, other: Entry) -> Entry | None:
        """One entry that does what this one does and then the other one; None: there is none."""
        texts = self.texts
        if texts is None or texts is not other.texts or self.captured is None or other.captured is None:
            return None
        if texts.form.command != "InsertStmt" or texts.form.upserts or self.rows is None or other.rows is None:
            return None
        return replace(
            self,
            captured=self.captured + other.captured,
            locked=self.locked | other.locked,
            shared=self.shared | other.shared,
            rows=self.rows + other.rows,
        )

    def execution(self, *, sandbox: bool) -> tuple[bytes, bytes, bytes]:
        """What does it again: a text, its parameters' types, and what is bound. A COPY's text is all that counts."""
        texts = self.texts
        if texts is None:
            return self.sql, self.types, self.bound
        if self.captured is not None and texts.capture is not None:
            again = texts.capture.sandbox if sandbox else texts.capture.physical
            return again.encode(), NO_PARAMETERS, _bound_array(self.captured)
        text = texts.sandbox if sandbox else texts.physical
        sql = self.sql if text.sql is None else text.sql.encode()
        return sql, self.types, with_last_column(self.bound, text)

    def of_many_rows(self) -> tuple[bytes, bytes, bytes] | None:
        """The same in the sandbox for a statement that has written many rows; None: it is done again as it is."""
        texts = self.texts
        if texts is None or self.copied is not None:
            return None
        if self.captured is not None:
            many = None if texts.capture is None else texts.capture.many
            return None if many is None else (many.encode(), NO_PARAMETERS, _bound_array(self.captured))
        if texts.whole is None:
            return None
        return texts.whole.text().encode(), self.types, _without_columns(self.bound)


@final
class Work:
    """One transaction of a session."""

    __slots__ = (
        "committing",
        "doomed",
        "doubtful",
        "explicit",
        "inserted",
        "keys",
        "log",
        "park_wanted",
        "snapshot",
        "state",
        "written",
    )

    def __init__(self, snapshot: int) -> None:
        self.snapshot = snapshot  #: its moment in the books
        self.state = State.PHYSICAL
        self.log: list[Entry] = []
        self.keys = Keys()
        self.inserted: dict[int, str] = {}  #: tables where it may have made unique keys, their names by their OIDs
        self.doomed = False  #: a rival has committed first
        self.doubtful = False  #: a key that it inserted may have been freed meanwhile
        self.written = 0  #: rows, cascades included, when its writes were last given up
        self.park_wanted = False  #: it is in a rival's way
        self.committing = False  #: it is being committed: nobody may be in its way any more

    def note(self, run: Run, plan: Plan, texts: Texts | None, tag: bytes | None, reply: Group | None = None) -> None:
        """Note a statement that has succeeded, so that it can be done again."""
        rows = rows_written(texts, tag)
        if rows == 0:
            # What has done nothing must not do something the next time.
            return
        portal = run.portal
        entry = Entry(
            plan.sent,
            texts,
            NO_PARAMETERS if portal is None else portal.prepared.rest,
            bound_of(None if portal is None else portal.bind),
            plan.statement.kind == "ddl",
            None if reply is None or texts is None or texts.capture is None else tuple(reply.captured),
            run.copied,
            _NO_KEYS if reply is None else frozenset(reply.locked),
            _NO_KEYS if reply is None else frozenset(reply.shared),
            rows,
        )
        both = self.log[-1].and_then(entry) if self.log else None
        if both is None:
            self.log.append(entry)
        else:
            self.log[-1] = both
        if texts is not None:
            for table in texts.inserts:
                self.inserted[table.oid] = table.name


def of_no_row(error: Mapping[str, bytes] | None) -> bool:
    """Whether a lock wasn't given in time that is no row's: of a file that is being extended, or of a whole table.

    Where it is a row's, PostgreSQL says in the context at which tuple that was.
    """
    return error is not None and error.get("C") == _NOT_GIVEN and b"tuple" not in error.get("W", b"")


def rows_written(texts: Texts | None, tag: bytes | None) -> int | None:
    """How many rows a statement wrote, where its tag tells."""
    return rows_of(tag) if texts is not None and texts.form.command in _COUNTED else None


def rows_of(tag: bytes | None) -> int | None:
    """The number at the end of a command tag."""
    last = (tag or b"").rpartition(b" ")[2]
    return int(last) if last.isdigit() else None


def own_command(sql: str) -> bytes:
    """The same for a command without parameters."""
    return own_execution(sql.encode(), NO_PARAMETERS, NOTHING_BOUND)


def with_last_column(bound: bytes, text: Text) -> bytes:
    """The same with a format for the column that our text adds to the client's."""
    if text.last == "client":
        return bound
    if not text.rows:
        return _without_columns(bound)
    place = _behind_values(bound)
    formats = int.from_bytes(bound[place : place + 2], "big")
    if formats <= 1:
        return bound
    return bound[:place] + (formats + 1).to_bytes(2, "big") + bound[place + 2 :] + NO_PARAMETERS


def _without_columns(bound: bytes) -> bytes:
    """The same without formats for the columns of the answer."""
    return bound[: _behind_values(bound)] + NO_PARAMETERS


def _behind_values(bound: bytes) -> int:
    place = 2 + 2 * int.from_bytes(bound[:2], "big")
    count = int.from_bytes(bound[place : place + 2], "big")
    place += 2
    for _ in range(count):
        length = int.from_bytes(bound[place : place + 4], "big", signed=True)
        place += 4 + max(length, 0)
    return place


def _bound_array(rows: tuple[bytes, ...]) -> bytes:
    """One parameter: an array of texts."""
    quoted = (b'"' + row.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' for row in rows)
    array = b"{" + b",".join(quoted) + b"}"
    return NO_PARAMETERS + b"\0\1" + len(array).to_bytes(4, "big") + array + NO_PARAMETERS
