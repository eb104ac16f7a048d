"""Statements that have their values in the text, as ones that have them in parameters: so they can become one. No I/O.

Only those become another text that have no parameters at all. Texts that differ in their numbers and quoted texts only
have the same parse tree but for these, so which of them are values is looked up once for all that are alike. What
stands for them is planned like a client's statement; where a value can't be a parameter, nothing is gained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pytest_dsql.local.adjudicator.sandbox import Catalog, Form, Plan, form, plan
from pytest_dsql.local.adjudicator.work import Entry
from pytest_dsql.local.dialect.tree import Body
from pytest_dsql.local.gateway.run import NO_PARAMETERS

#: A text in quotes that means what it says, a quoted name, a number without a sign.
_LITERAL: Final = re.compile(
    rb"""((?<![\w&\x80-\xff])'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![\w.\x80-\xff])(?:\d+(?:\.\d*)?|\.\d+)(?![\w.\x80-\xff]))""",
    re.ASCII,
)
#: What stands between them where they were not told apart for certain: comments, dollars, other kinds of quotes.
_UNCLEAR: Final = re.compile(rb"""['"$\\]|--|/\*""")

_INTEGER, _BIGINT, _NUMERIC, _UNKNOWN = 23, 20, 1700, 0
#: Functions that take anything: what a literal is they know, and of a parameter they don't.
_TAKING_ANYTHING: Final = frozenset({"concat"})
_QUOTE: Final = ord("'")
#: Stands for a literal; in no text.
_MARK: Final = b"\0"


def with_parameters(log: Sequence[Entry], catalog: Catalog, schemas: Sequence[str]) -> list[Entry]:
    """For each statement of a log what stands for it: itself, or one of which there are others with other values."""
    return list(_Parametrising(catalog, schemas).all(log))


class _Parametrising:
    def __init__(self, catalog: Catalog, schemas: Sequence[str]) -> None:
        self._catalog = catalog
        self._schemas = schemas
        #: Which literals are values, by the texts without literals; none where nothing can be gained.
        self._values: dict[bytes, tuple[int, ...]] = {}
        self._plans: dict[tuple[bytes, bytes], Plan | None] = {}

    def all(self, log: Sequence[Entry]) -> Iterator[Entry]:
        for entry in log:
            if entry.types != NO_PARAMETERS or entry.rows != 1 or entry.captured is not None:
                yield entry
            else:
                yield self._one(entry) or entry

    def _one(self, entry: Entry) -> Entry | None:
        texts = entry.texts
        if texts is None or not texts.writes:
            return None
        pieces = _LITERAL.split(entry.sql)
        literals = pieces[1::2]
        between = _MARK.join(pieces[::2])
        places = self._values.get(between)
        if places is None:
            places = self._values[between] = () if _UNCLEAR.search(between) else tuple(_values(texts.form, pieces))
        if not places:
            return None
        given = [_value(literals[place]) for place in places]
        oids = b"".join([oid.to_bytes(4, "big") for oid, _ in given])
        for number, place in enumerate(places, 1):
            pieces[1 + 2 * place] = b"$%d" % number
        sql = b"".join(pieces)
        if (sql, oids) not in self._plans:
            self._plans[sql, oids] = self._planned(sql)
        planned = self._plans[sql, oids]
        if planned is None or texts.writes[0].oid != planned.writes[0].oid:
            return None
        count = len(given).to_bytes(2, "big")
        values = b"".join([len(value).to_bytes(4, "big") + value for _, value in given])
        return Entry(sql, planned, count + oids, NO_PARAMETERS + count + values + NO_PARAMETERS, rows=entry.rows)

    def _planned(self, sql: bytes) -> Plan | None:
        made = plan(form(sql.decode("utf-8", "surrogateescape").rstrip(" \t\r\n;")), self._catalog, self._schemas)
        return None if made.batch is None else made


def _values(known: Form, pieces: Sequence[bytes]) -> Iterator[int]:
    """Which of the literals are values, by their numbers."""
    if known.command not in ("InsertStmt", "UpdateStmt", "DeleteStmt") or known.reads:
        return
    if known.functions & _TAKING_ANYTHING:
        return
    constants = set(_constants(known.body))
    start = 0
    for number, piece in enumerate(pieces):
        if number % 2 and start in constants:
            yield number // 2
        start += len(piece)


def _value(literal: bytes) -> tuple[int, bytes]:
    """What PostgreSQL takes a literal for, and its value."""
    if literal[0] == _QUOTE:
        return _UNKNOWN, literal[1:-1].replace(b"''", b"'")
    if not literal.isdigit():
        return _NUMERIC, literal
    size = int(literal)
    return (_INTEGER if size < 2**31 else _BIGINT if size < 2**63 else _NUMERIC), literal


def _constants(body: Body) -> Iterator[int]:
    """Where numbers and texts are; those left out that belong to a type, or have theirs before them."""
    stack: list[Any] = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            constant, cast = value.get("A_Const"), value.get("TypeCast")
            if cast is not None and _is_typed(cast):
                continue
            if constant is None:
                stack += [child for name, child in value.items() if name != "typeName"]
            elif constant.keys() & {"sval", "ival", "fval"}:
                yield constant.get("location", 0)


def _is_typed(cast: Body) -> bool:
    """Whether a literal's type stands before it: there no parameter may."""
    literal = cast["arg"].get("A_Const", {})
    return bool(cast["typeName"].get("location", 0) < literal.get("location", -1))
