"""Statements that have their values in the text, as ones that have them in parameters: so they can become one. No I/O.

Only those become another text that have no parameters at all. What stands for one is planned like a client's statement,
once for all that are alike; where a value can't be a parameter that text is no statement, and nothing is gained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pytest_dsql.local.adjudicator.sandbox import Catalog, Plan, form, plan
from pytest_dsql.local.adjudicator.work import Entry
from pytest_dsql.local.dialect.tree import Body
from pytest_dsql.local.gateway.run import NO_PARAMETERS

#: A number, and a text in quotes that means what it says.
_NUMBER: Final = re.compile(rb"-?\s*(\d+(?:\.\d*)?|\.\d+)(?![\w.])", re.ASCII)
_TEXT: Final = re.compile(rb"'((?:[^']|'')*)'")

_INTEGER, _BIGINT, _NUMERIC, _UNKNOWN = 23, 20, 1700, 0
#: Functions that take anything: what a literal is they know, and of a parameter they don't.
_TAKING_ANYTHING: Final = frozenset({"concat"})
#: A name for what stands between the values of a text.
_MARK: Final = b"\0"


def with_parameters(log: Sequence[Entry], catalog: Catalog, schemas: Sequence[str]) -> list[Entry]:
    """For each statement of a log what stands for it: itself, or one of which there are others with other values."""
    plans: dict[tuple[bytes, tuple[int, ...]], tuple[bytes, Plan] | None] = {}
    found: list[Entry] = []
    for entry in log:
        parted = _parted(entry)
        if parted is None:
            found.append(entry)
            continue
        text, types, values = parted
        if (text, types) not in plans:
            plans[text, types] = _planned(text, entry, catalog, schemas)
        planned = plans[text, types]
        if planned is None:
            found.append(entry)
            continue
        count = len(values).to_bytes(2, "big")
        given = b"".join(len(value).to_bytes(4, "big") + value for value in values)
        found.append(
            replace(
                entry,
                sql=planned[0],
                texts=planned[1],
                types=count + b"".join(oid.to_bytes(4, "big") for oid in types),
                bound=NO_PARAMETERS + count + given + NO_PARAMETERS,
            )
        )
    return found


def _planned(text: bytes, entry: Entry, catalog: Catalog, schemas: Sequence[str]) -> tuple[bytes, Plan] | None:
    pieces = text.split(_MARK)
    sql = pieces[0] + b"".join(b"$%d%s" % numbered for numbered in enumerate(pieces[1:], 1))
    made = plan(form(sql.decode("utf-8", "surrogateescape").rstrip(" \t\r\n;")), catalog, schemas)
    same = entry.texts is not None and [one.oid for one in made.writes] == [one.oid for one in entry.texts.writes]
    return (sql, made) if same and made.batch is not None else None


def _parted(entry: Entry) -> tuple[bytes, tuple[int, ...], list[bytes]] | None:
    """A statement's text with marks in place of its values, their types, and the values."""
    texts = entry.texts
    if texts is None or texts.capture is not None or entry.rows != 1 or entry.types != NO_PARAMETERS:
        return None
    body = texts.form
    if (
        body.command not in ("InsertStmt", "UpdateStmt", "DeleteStmt")
        or body.reads
        or body.functions & _TAKING_ANYTHING
    ):
        return None
    pieces: list[bytes] = []
    types: list[int] = []
    values: list[bytes] = []
    behind = 0
    for place, kind in sorted(_constants(body.body)):
        found = (_TEXT if kind == "sval" else _NUMBER).match(entry.sql, place)
        if found is None:
            continue  # it stays where it is, and what differs there is another text
        value = found[1].replace(b"''", b"'") if kind == "sval" else found[0].translate(None, b" \t\r\n\f\v")
        pieces.append(entry.sql[behind:place])
        types.append(_UNKNOWN if kind == "sval" else _type(value))
        values.append(value)
        behind = found.end()
    return (_MARK.join([*pieces, entry.sql[behind:]]), tuple(types), values) if values else None


def _type(number: bytes) -> int:
    """What PostgreSQL takes a number for."""
    if not number.lstrip(b"-").isdigit():
        return _NUMERIC
    size = int(number)
    return _INTEGER if -(2**31) < size < 2**31 else _BIGINT if -(2**63) < size < 2**63 else _NUMERIC


def _is_typed(cast: Body) -> bool:
    """Whether a literal's type stands before it: there no parameter may."""
    literal = cast["arg"].get("A_Const", {})
    return bool(cast["typeName"].get("location", 0) < literal.get("location", -1))


def _constants(body: Body) -> Iterator[tuple[int, str]]:
    """Where numbers and texts are, and which of both; those of types left out."""
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
            else:
                kind = next((kind for kind in ("sval", "ival", "fval") if kind in constant), None)
                if kind is not None and "location" in constant:
                    yield constant["location"], kind
