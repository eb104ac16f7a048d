"""Statements of one text that only differ in their parameters, and each write one row of their own: done again at once.

One by one they cost PostgreSQL more than what they do. Whether it is the same is told from the text: each of them has
to name its row by the whole primary key, or to insert it, and must look at nothing but that row and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.adjudicator.sandbox.rowsets import fits, parameters, rowset
from pytest_dsql.local.adjudicator.sandbox.upserts import arbiters
from pytest_dsql.local.dialect.tree import Body, only, string, strings

#: The functions that may be called: of their arguments alone, or of the transaction.
_FUNCTIONS: Final = frozenset({"now", "transaction_timestamp", "lower", "upper", "abs", "round", "length", "concat"})


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """How many executions of a text are done again in the sandbox as one statement."""

    table: Table
    inserts: bool  #: it needs its row to be missing
    numbers: tuple[int, ...]  #: of the parameters, in their order; each is an array in the one statement
    #: Of the parameters that are the primary key, in its columns' order; None: an INSERT whose key is an expression.
    key: tuple[int, ...] | None
    form: Form

    @property
    def upserts(self) -> bool:
        """Whether it doesn't matter to it if its row is there."""
        return self.form.upserts > 0

    def text(self) -> str:
        """The one statement; its parameters are arrays."""
        return rowset(self.form, self.table, self.numbers)


def batch(form: Form, table: Table, catalog: Catalog) -> Batch | None:
    """How executions of a statement on `table` are done again at once; None where that might be something else."""
    if (
        form.body.get("withClause")
        or form.reads
        or form.columns
        or form.locks
        or form.upserts > 1
        or form.defaults
        or form.picks
        or form.hidden
        or len(form.writes) != 1
        or not form.functions <= _FUNCTIONS - catalog.client_functions
        # What a foreign key does to other rows isn't told by the text.
        or any(key.on_delete in "cnd" or key.on_update in "cnd" for key in table.referenced)
        or table.identity is None
        or not fits(form, table, catalog)
    ):
        return None
    place = {column: number for number, column in enumerate(table.identity.columns)}
    found: dict[int, int]
    kept = table.key_columns | {column for key in table.references for column in key.columns}
    if form.command == "InsertStmt":
        values = _single_row(form)
        if values is None or form.body.get("override", "OVERRIDING_NOT_SET") != "OVERRIDING_NOT_SET":
            return None
        if table.identities or table.generated:
            return None
        columns = [column["ResTarget"]["name"] for column in form.body.get("cols", ())] or list(table.columns)
        found = {
            place[column]: number
            for column, value in zip(columns, values, strict=False)
            if column in place and (number := _parameter(value)) is not None
        }
        if form.upserts and (len(found) < len(place) or not _upserts_its_row(form, table, kept)):
            return None
    elif form.command in ("UpdateStmt", "DeleteStmt"):
        if "fromClause" in form.body or "usingClause" in form.body or table.extra_unique:
            return None
        if any(target["ResTarget"].get("name") in kept for target in form.body.get("targetList", ())):
            return None
        found = dict(_named(form.body.get("whereClause"), place))
        if len(found) < len(place):
            return None
    else:
        return None
    numbers = tuple(sorted({node["number"] for node in parameters(form.body) if "number" in node}))
    if not numbers:
        return None
    key = tuple(found[number] for number in range(len(place))) if len(found) == len(place) else None
    return Batch(table, form.command == "InsertStmt" and not form.upserts, numbers, key, form)


def _upserts_its_row(form: Form, table: Table, kept: frozenset[str]) -> bool:
    """Whether ON CONFLICT is about the primary key alone, and leaves the row's keys."""
    clause = form.body["onConflictClause"]
    if arbiters(clause, table) != [table.identity] or "infer" not in clause:
        return False
    return not any(target["ResTarget"].get("name") in kept for target in clause.get("targetList", ()))


def _single_row(form: Form) -> list[Body] | None:
    select = form.body.get("selectStmt", {}).get("SelectStmt", {})
    rows = select.get("valuesLists", ())
    return rows[0]["List"].get("items") if len(rows) == 1 else None


def _parameter(value: Body) -> int | None:
    """The number of the parameter that an expression is; None: it is something else."""
    kind, node = only(value)
    return node.get("number") if kind == "ParamRef" else None


def _named(condition: Body | None, place: dict[str, int]) -> Iterator[tuple[int, int]]:
    """The columns of the primary key, by their places, that a WHERE clause says to be a parameter; and its number."""
    stack = [] if condition is None else [condition]
    while stack:
        kind, node = only(stack.pop())
        if kind == "BoolExpr" and node["boolop"] == "AND_EXPR":
            stack += node["args"]
        elif kind == "A_Expr" and node["kind"] == "AEXPR_OP" and [string(part) for part in node["name"]] == ["="]:
            for one, other in ((node.get("lexpr"), node.get("rexpr")), (node.get("rexpr"), node.get("lexpr"))):
                if one is None or other is None:
                    continue
                name, column = only(one)
                number = _parameter(other)
                last = strings(column["fields"])[-1:] if name == "ColumnRef" else []
                if number is not None and last and last[0] in place:
                    yield place[last[0]], number
