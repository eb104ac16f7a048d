"""Rows that a statement wrote, and could write otherwise the next time: captured, and written again as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.adjudicator.sandbox.names import hidden_schema
from pytest_dsql.local.adjudicator.sandbox.rowsets import captured
from pytest_dsql.local.adjudicator.sandbox.texts import identifier, listed


@final
@dataclass(frozen=True, slots=True)
class Capture:
    """How captured rows are written again. Both texts have one parameter: the rows, as `text[]`."""

    physical: str
    sandbox: str
    many: str | None = None  #: the same as `sandbox`, for many rows


def captures(form: Form, catalog: Catalog, table: Table) -> bool:
    """Whether the rows of a statement have to be captured: where it could mean other rows or values the next time."""
    if form.command == "InsertStmt":
        if table.insert_only and "returningClause" not in form.body:
            # Who can't read the rows can't have them answered, and hasn't seen what might be another value next time.
            return False
        given = {column["ResTarget"]["name"] for column in form.body.get("cols", ())}
        if not given:
            given = set(table.columns[: _width(form)])
        if table.volatile - given or (form.defaults and table.volatile):
            return True
    elif table.identity is None:
        return False
    elif form.command == "UpdateStmt" and any(
        target["ResTarget"].get("name") in table.identity.columns for target in form.body["targetList"]
    ):
        # Its rows couldn't be found again by their keys.
        return False
    elif form.defaults and table.volatile:
        return True
    return form.picks or bool(form.functions & catalog.volatile_functions)


def _width(form: Form) -> int:
    """How many columns an INSERT without a list of columns gives; 0 where the text doesn't tell."""
    select = form.body.get("selectStmt", {}).get("SelectStmt", {})
    values = select.get("valuesLists")
    return len(values[0]["List"].get("items", ())) if values else 0


def capture(form: Form, table: Table) -> Capture | None:
    """How the captured rows of a statement on `table` are written again; None where they can't be."""
    own = f"{identifier(table.schema)}.{identifier(table.name)}"
    helper = f"{identifier(hidden_schema(table.schema))}.{identifier(table.name)}"
    rows = f"(SELECT (c.r).* FROM (SELECT pg_catalog.unnest($1::text[])::{own} AS r) AS c) AS r"
    key = table.identity
    same = " AND ".join(f"t.{identifier(c)} = r.{identifier(c)}" for c in key.columns) if key else ""
    others = [column for column in table.stored if not key or column not in key.columns]
    update = ", ".join(f"{identifier(c)} = r.{identifier(c)}" for c in others)
    insert = f"({listed(table.stored)}) OVERRIDING SYSTEM VALUE SELECT {listed(table.stored, 'r')} FROM {rows}"
    if form.command == "InsertStmt" and form.body.get("onConflictClause", {}).get("action") == "ONCONFLICT_UPDATE":
        if not key or not others:
            return None
        excluded = ", ".join(f"{identifier(c)} = excluded.{identifier(c)}" for c in others)
        return Capture(
            f"INSERT INTO {own} AS t {insert} ON CONFLICT ({listed(key.columns)}) DO UPDATE SET {excluded}",
            f"WITH u AS (UPDATE {helper} AS t SET {update} FROM {rows} WHERE {same}) INSERT INTO {helper} {insert}"
            f" WHERE NOT EXISTS (SELECT FROM {helper} AS t WHERE {same})",
        )
    if form.command == "InsertStmt":
        return Capture(f"INSERT INTO {own} {insert}", f"INSERT INTO {helper} {insert}", captured(table, rows))
    if form.command == "UpdateStmt" and others:
        return Capture(*(f"UPDATE {place} AS t SET {update} FROM {rows} WHERE {same}" for place in (own, helper)))
    if form.command == "DeleteStmt":
        return Capture(*(f"DELETE FROM {place} AS t USING {rows} WHERE {same}" for place in (own, helper)))
    return None
