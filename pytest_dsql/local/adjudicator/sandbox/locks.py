"""Locks that outlive their transaction: FOR UPDATE leaves a mark on its rows, and both kinds tell their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form, Strength
from pytest_dsql.local.adjudicator.sandbox.names import PREFIX
from pytest_dsql.local.adjudicator.sandbox.sources import tables_of
from pytest_dsql.local.adjudicator.sandbox.texts import Edit, Source, identifier
from pytest_dsql.local.dialect.tree import Body

_STRENGTHS: Final[dict[str, Strength]] = {"LCS_FORUPDATE": "update", "LCS_FORKEYSHARE": "share"}


def locked(
    form: Form, catalog: Catalog, schemas: Sequence[str], source: Source, redirected: Sequence[Edit]
) -> tuple[str, str] | None:
    """The texts of a query with a locking clause, for the tables and for the sandbox; None: none that could be marked.

    PostgreSQL forgets a row's lock with the transaction that took it, but not its update: so in the tables rows that
    are locked FOR UPDATE are updated to what they are. The answers have one more column: the rows' keys. `redirected`
    are the edits with which the query runs in the sandbox.
    """
    select = form.body
    if form.command != "SelectStmt" or "lockingClause" not in select or select.get("op", "SETOP_NONE") != "SETOP_NONE":
        return None
    tables = list(tables_of(select, catalog, schemas))
    strengths = dict(_strengths(select, [alias for alias, _ in tables]))
    tables = [(alias, table) for alias, table in tables if alias in strengths]
    start = source.find(("SELECT",))
    place = _behind_targets(source, start) if start is not None else None
    if not tables or place is None or start is None:
        return None
    updated = [(alias, table) for alias, table in tables if strengths[alias] == "update" and _harmless(table)]
    comma = ", " if select.get("targetList") else ""

    def told(rows: Sequence[str]) -> Edit:
        return place, place, f" {comma}{_column(tables, strengths, rows)} AS {PREFIX} "

    edits = [told([alias for alias, _ in updated])]
    for _, behind_tables, behind in source.locking_clauses():
        edit = source.blank(behind_tables, behind)
        if edit:
            edits.append(edit)
    # The client's WITH stays inside, so that its names don't meet ours.
    query = source.piece(0, source.end, edits)
    marks = "".join(
        f", {PREFIX}_{number} AS (UPDATE {identifier(table.schema)}.{identifier(table.name)} AS t"
        f" SET {identifier(_harmless(table) or '')} = t.{identifier(_harmless(table) or '')}"
        f" FROM {PREFIX} AS l WHERE t.ctid = (l.{PREFIX} #>> '{{rows,{number}}}')::tid)"
        for number, (_, table) in enumerate(updated)
    )
    physical = f"WITH {PREFIX} AS MATERIALIZED ({query}){marks} SELECT * FROM {PREFIX}"
    return physical, source.piece(0, source.end, [*redirected, told(())])


def _strengths(select: Body, aliases: Sequence[str]) -> Iterator[tuple[str, Strength]]:
    for clause in reversed(select["lockingClause"]):
        clause = clause["LockingClause"]
        strength = _STRENGTHS.get(clause["strength"])
        named = [one["RangeVar"]["relname"] for one in clause.get("lockedRels", ())] or aliases
        if strength:
            yield from ((alias, strength) for alias in named)


def _behind_targets(source: Source, start: int) -> int | None:
    number = source.find(("FROM",), start)
    while number is not None and source.word(number - 1) == "DISTINCT":
        number = source.find(("FROM",), number + 1)
    return source.tokens[number].start if number is not None else None


def _harmless(table: Table) -> str | None:
    """A column that can be set to what it is: not a key's if there is another."""
    candidates = [column for column in table.stored if column not in table.identities]
    return next((c for c in candidates if c not in table.key_columns), next(iter(candidates), None))


def _column(tables: Sequence[tuple[str, Table]], strengths: dict[str, Strength], updated: Sequence[str]) -> str:
    keys: dict[Strength, list[str]] = {"update": [], "share": []}
    for alias, table in tables:
        keys[strengths[alias]] += [key.of(identifier(alias)) for key in table.keys]
    rows = ", ".join(f"{identifier(alias)}.ctid" for alias in updated)
    return (
        f"pg_catalog.jsonb_build_object('rows', pg_catalog.jsonb_build_array({rows}),"
        f" 'locked', pg_catalog.jsonb_build_array({', '.join(keys['update'])}),"
        f" 'shared', pg_catalog.jsonb_build_array({', '.join(keys['share'])}))"
    )
