"""What is sent for a statement: its form, met with the tables as they are. Once for each text, catalog and path."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form


class Answer(enum.Enum):
    """What has to be done to the answer of a text that isn't the client's."""

    AS_IT_IS = enum.auto()
    #: The last column of the rows is the engine's: one captured row as text. The tag is right.
    WITHOUT_LAST_COLUMN = enum.auto()
    #: As before, and the client asked for no rows: no RowDescription and no DataRow reach it.
    WITHOUT_ROWS = enum.auto()
    #: The rows are the client's, the tag becomes `INSERT 0 <number of rows>`.
    ROWS_OF_INSERT = enum.auto()
    #: One row with one bigint: nothing of it reaches the client, the tag becomes `INSERT 0 <the number>`.
    COUNT_OF_INSERT = enum.auto()


@final
@dataclass(frozen=True, slots=True)
class Hidden:
    """A statement of the engine's own that uses some of the client's parameters."""

    sql: str
    parameters: tuple[int, ...] = ()  #: for its $1, $2, ...: which of the client's, counted from 0


@final
@dataclass(frozen=True, slots=True)
class Text:
    """What is sent in place of the client's text, with the same parameters."""

    sql: str | None = None  #: None: the client's own text
    answer: Answer = Answer.AS_IT_IS


@final
@dataclass(frozen=True, slots=True)
class Capture:
    """How the rows that a statement wrote are written again, because the statement itself could write others.

    Both texts have one parameter: the captured rows, as `text[]`.
    """

    physical: str
    sandbox: str


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent for a statement."""

    form: Form
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    inserts: tuple[Table, ...]  #: of `writes`: where a unique key may appear
    may_write: bool  #: it has `writes`, or calls a function that may write
    before: tuple[Hidden, ...]  #: run before it in physical mode: locks; they answer two text columns, kind and key
    physical: Text
    sandbox: Text
    capture: Capture | None  #: None: replayed by its own text


def plan(form: Form, catalog: Catalog, schemas: Sequence[str]) -> Plan:
    """Make the plan of a statement for a session whose search path is `schemas` (as `current_schemas(false)`)."""

    def found(names: frozenset[tuple[str | None, str]]) -> tuple[Table, ...]:
        tables = (catalog.find(schema, name, schemas) for schema, name in sorted(names, key=str))
        return tuple(table for table in tables if table is not None)

    writes = found(form.writes)
    return Plan(form, found(form.reads), writes, found(form.inserts), bool(writes), (), Text(), Text(), None)
