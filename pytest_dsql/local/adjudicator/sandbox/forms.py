"""What a statement does to which tables, told from its text alone: once for each text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from pytest_dsql.local.dialect.libpg_query import ParseError, parse
from pytest_dsql.local.dialect.tree import decode, only

#: As a name stands in the text: its schema, None where it has none, and the name, folded as PostgreSQL folds it.
Name: TypeAlias = "tuple[str | None, str]"

Strength: TypeAlias = Literal["update", "share"]


@final
@dataclass(frozen=True, slots=True)
class Form:
    """A statement's form. `writes` and `reads` leave out the names of its own WITH queries."""

    sql: str
    command: str  #: the parse tree's name: `SelectStmt`, `InsertStmt`, ...; empty where the text doesn't parse
    reads: frozenset[Name]
    writes: frozenset[Name]  #: INSERT, UPDATE, DELETE, COPY FROM, also inside WITH and EXPLAIN ANALYZE
    inserts: frozenset[Name]  #: of `writes`: where a unique key may appear (INSERT, COPY FROM, UPDATE)
    locks: frozenset[Strength]  #: FOR UPDATE, FOR KEY SHARE, anywhere in it
    hidden: bool  #: it names something of the engine's own, which to a client doesn't exist
    body: dict[str, Any] = field(repr=False)


def form(sql: str) -> Form:
    """Tell the form of one statement, as it would be sent to PostgreSQL. Never raises on any text."""
    try:
        statements = decode(parse(sql.encode())).get("stmts", [])
    except (ParseError, UnicodeEncodeError):
        statements = []
    command, body = only(statements[0]["stmt"]) if statements else ("", {})
    nothing: frozenset[Name] = frozenset()
    return Form(sql, command, nothing, nothing, nothing, frozenset(), False, body)
