"""Values for columns that take none: PostgreSQL refuses them for a table, and knows nothing of them for a view."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsql.local.adjudicator.sandbox.catalog import Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.dialect.tree import Body


def assigns_generated(form: Form, table: Table) -> bool:
    """Whether an INSERT or UPDATE gives a value to a generated column, or to an identity that is always generated."""
    refused = table.generated
    if form.body.get("override") != "OVERRIDING_SYSTEM_VALUE":
        refused |= table.always
    if not refused:
        return False
    assigned = _inserted(form, table) if form.command == "InsertStmt" else _updated(form)
    return any(name in refused for name in assigned)


def _inserted(form: Form, table: Table) -> Iterator[str]:
    select = form.body.get("selectStmt", {}).get("SelectStmt", {})
    columns = [column["ResTarget"]["name"] for column in form.body.get("cols", ())] or table.columns
    rows = [row["List"].get("items", []) for row in select.get("valuesLists", ())]
    for number, name in enumerate(columns):
        if rows:
            given = [row[number] for row in rows if number < len(row)]
        else:
            # As many as the query has columns; a `*` stands for any number.
            targets = select.get("targetList", [])
            given = targets[number : number + 1] or ([{}] if form.body.get("cols") and targets else [])
        if any("SetToDefault" not in value for value in given):
            yield name


def _updated(form: Form) -> Iterator[str]:
    targets: list[Body] = [target["ResTarget"] for target in form.body.get("targetList", ())]
    for target in targets:
        if "SetToDefault" not in target.get("val", {}):
            yield target["name"]
