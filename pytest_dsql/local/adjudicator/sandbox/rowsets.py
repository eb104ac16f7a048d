"""A statement that writes many rows, or many executions of one that writes one, past the triggers of the table's view.

Those take most of the time. What stands for the statement writes sets of rows into the helpers themselves, and calls a
function that looks at these rows as the triggers would, and fails where those would (`rowsets.sql`). So it is no more
the client's statement: only its expressions are, which the client's role evaluates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.adjudicator.sandbox.forms import form as form_of
from pytest_dsql.local.adjudicator.sandbox.names import PREFIX, written_schema
from pytest_dsql.local.adjudicator.sandbox.texts import Edit, Source, identifier, listed
from pytest_dsql.local.dialect.tree import Body, only, string

#: The parameters' rows, and their columns before the parameters' numbers.
_ROWS: Final = f"{PREFIX}_p"
_COLUMN: Final = f"{PREFIX}_p"
#: Where a row is: in the table, in the overlay; and whether it is anywhere.
_BASE: Final = f"{PREFIX}_b"
_OVERLAID: Final = f"{PREFIX}_o"
_THERE: Final = f"{PREFIX}_t"
_FOUND: Final = f"{PREFIX}_f"
_AS_TEXT: Final = f"{PREFIX}_r"

_HELPERS: Final = "pytest_dsql_engine_sandbox"
#: How many rows were taken away: who asks for it comes after that.
_TAKEN: Final = f"(SELECT pg_catalog.count(*) FROM {PREFIX}_g) + (SELECT pg_catalog.count(*) FROM {PREFIX}_d)"


def parameters(body: Body) -> Iterator[Body]:
    """The parameters' nodes."""
    return _nodes(body, "ParamRef")


def rowset(form: Form, table: Table, numbers: Sequence[int]) -> str:
    """The statement; its parameters are arrays, in the order of `numbers`, which the client's text has.

    Its tag tells how many rows were written. Only for forms of which `fits` is true.
    """
    text = _Text(form, table, numbers)
    match form.command:
        case "InsertStmt":
            return text.upsert() if form.upserts else text.insert()
        case "UpdateStmt":
            return text.update()
    return text.delete()


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """How a statement that has written many rows is done again in the sandbox: with its parameters as they are."""

    form: Form
    table: Table

    def text(self) -> str:
        """The statement that stands for it; its tag tells how many rows were written."""
        text = _Text(self.form, self.table, ())
        match self.form.command:
            case "InsertStmt":
                return text.insert_all()
            case "UpdateStmt":
                return text.update()
        return text.delete()


def whole(form: Form, table: Table, catalog: Catalog) -> Whole | None:
    """How a statement on `table` that writes many rows is done again; None: as it is."""
    if (
        form.body.get("withClause")
        or form.columns
        or form.groups
        or form.locks
        or form.upserts
        or form.defaults
        or form.hidden
        or len(form.writes) != 1
        or any(schema is not None for schema, _ in form.reads)
        or form.functions & catalog.client_functions
        or table.identity is None
        or table.extra_unique
    ):
        return None
    if form.command == "InsertStmt":
        overrides = form.body.get("override", "OVERRIDING_NOT_SET") != "OVERRIDING_NOT_SET"
        return None if overrides or table.identities or table.generated else Whole(form, table)
    if "fromClause" in form.body or "usingClause" in form.body or not fits(form, table, catalog):
        return None
    if form.command == "DeleteStmt":
        follows = any(key.on_delete in "cnd" for key in table.referenced)
    else:
        kept = table.key_columns | {column for key in table.references for column in key.columns}
        follows = any(target["ResTarget"].get("name") in kept for target in form.body["targetList"])
    return None if follows else Whole(form, table)


def captured(table: Table, rows: str) -> str | None:
    """The statement that inserts `rows`, which are called `r`; None where it has to go by the triggers."""
    if table.identity is None or table.extra_unique:
        return None
    stored = listed(table.stored)
    return (
        f"WITH {PREFIX}_i AS (INSERT INTO {_place(table)} ({stored}) SELECT {listed(table.stored, 'r')} FROM {rows}"
        f" RETURNING {PREFIX}) {_check(table, '0')}"
    )


def fits(form: Form, table: Table, catalog: Catalog) -> bool:
    """Whether what a statement on `table` says of its rows can be said of those in the helpers."""
    if table.extra_unique:
        return False
    for node in _nodes({name: part for name, part in form.body.items() if name != "returningClause"}, "ColumnRef"):
        # A whole row, and what only tables have.
        if string(node["fields"][-1]) not in table.columns:
            return False
    assigned = [*form.body.get("targetList", ()), *form.body.get("onConflictClause", {}).get("targetList", ())]
    for target in (one["ResTarget"] for one in assigned):
        if "indirection" in target or only(target["val"])[0] == "MultiAssignRef":
            return False
    # Its defaults are written where others can't name anything of their own in between.
    return not form.upserts or not any(
        form_of(f"SELECT {default}").functions & catalog.client_functions for _, default in table.defaults
    )


@final
class _Text:
    """What the statements are put together from."""

    def __init__(self, form: Form, table: Table, numbers: Sequence[int]) -> None:
        relation = form.body["relation"]
        self._form = form
        self._table = table
        self._source = Source(form.sql)
        self._alias = identifier(relation.get("alias", {}).get("aliasname") or relation["relname"])
        self._own = f"{identifier(table.schema)}.{identifier(table.name)}"
        self._written = _place(table)
        self._types = dict(zip(table.columns, table.types, strict=True))
        arrays = ", ".join(f"pg_catalog.unnest(${place})" for place in range(1, len(numbers) + 1))
        columns = ", ".join(f"{_COLUMN}{number}" for number in numbers)
        self._numbers = numbers
        self._rows = f"ROWS FROM ({arrays}) AS {_ROWS}({columns})" if numbers else ""
        self._edits = list(self._filled_in()) if numbers else []
        returning = self._source.find(("RETURNING",)) if "returningClause" in form.body else None
        self._end = self._source.end if returning is None else self._source.tokens[returning].start

    def insert(self) -> str:
        """An INSERT of one row."""
        columns = self._form.body.get("cols", ())
        named = [column["ResTarget"]["name"] for column in columns] or self._table.columns
        values = self._values()
        return (
            f"WITH {PREFIX}_i AS (INSERT INTO {self._written} ({listed(named[: len(values)])})"
            f" SELECT {', '.join(values)} FROM {self._rows} RETURNING {PREFIX}) {_check(self._table, '0')}"
        )

    def insert_all(self) -> str:
        """An INSERT of rows."""
        first, behind = self._source.relation(self._form.body["relation"].get("location", 0))
        sql = self._source.piece(0, self._end, [(first, behind, self._written)])
        return f"WITH {PREFIX}_i AS ({sql}\n RETURNING {PREFIX}) {_check(self._table, '0')}"

    def update(self) -> str:
        """An UPDATE."""
        new = self._assigned(self._form.body["targetList"])
        rows = (f"{new.get(c) or self._old(c)} AS {identifier(c)}" for c in self._table.stored)
        old = self._found(", ".join(rows))
        stored = listed(self._table.stored)
        return f"WITH {old}, {self._taken()} INSERT INTO {self._written} ({stored}) SELECT {stored} FROM {PREFIX}"

    def delete(self) -> str:
        """A DELETE."""
        if self._table.referenced:
            row = f"ROW({listed(self._table.columns, self._alias)})::pg_catalog.text AS {_AS_TEXT}"
            rows = f"(SELECT pg_catalog.array_agg({_AS_TEXT}) FROM {PREFIX})"
            check = f"{_HELPERS}.rows_deleted_{self._table.oid}({rows}, {_TAKEN})"
        else:
            row = f"true AS {_AS_TEXT}"
            check = f"{_HELPERS}.count_deleted({_TAKEN})"
        return f"WITH {self._found(row)}, {self._taken()} SELECT FROM {PREFIX} WHERE (SELECT {check})"

    def upsert(self) -> str:
        """An INSERT of one row with ON CONFLICT on the primary key."""
        clause = self._form.body["onConflictClause"]
        conflict = self._source.number(clause["location"])
        names = [column["ResTarget"]["name"] for column in self._form.body.get("cols", ())] or self._table.columns
        given = {**dict(self._table.defaults), **dict(zip(names, self._values(), strict=False))}
        key = self._table.identity
        assert key is not None
        stored = self._table.stored
        proposed = ", ".join(
            [f"{self._cast(c, given.get(c, 'NULL'))} AS {identifier(c)}" for c in stored]
            + [f"{_ROWS}.{_COLUMN}{number}" for number in self._numbers]
        )

        def there(relation: str, base: str, overlaid: str, gone: str) -> str:
            same = " AND ".join(f"r.{identifier(c)} = excluded.{identifier(c)}" for c in key.columns)
            return (
                f"SELECT {base} AS {_BASE}, {overlaid} AS {_OVERLAID}, true AS {_THERE}, {listed(stored, 'r')}"
                f" FROM {relation} AS r WHERE {same}{gone}"
            )

        rows = (
            there(self._own, "r.ctid", "NULL::pg_catalog.tid", f" AND {self._not_gone('r.ctid')}")
            + " UNION ALL "
            + there(self._written, "NULL::pg_catalog.tid", f"r.{PREFIX}", "")
        )
        new: Mapping[str, str] = {}
        condition = "false"
        if clause["action"] == "ONCONFLICT_UPDATE":
            new = self._assigned(clause["targetList"])
            where = self._source.find(("WHERE",), conflict) if "whereClause" in clause else None
            condition = "true" if where is None else self._piece(self._source.tokens[where].end, self._end)
        written = ", ".join(
            f"CASE WHEN {self._alias}.{_THERE} THEN {new.get(c) or self._old(c)}"
            f" ELSE excluded.{identifier(c)} END AS {identifier(c)}"
            for c in stored
        )
        return (
            f"WITH excluded AS MATERIALIZED (SELECT {proposed} FROM {self._rows}), {PREFIX} AS MATERIALIZED ("
            f"SELECT {self._alias}.{_BASE}, {self._alias}.{_OVERLAID}, {written}"
            f" FROM excluded LEFT JOIN LATERAL ({rows}) AS {self._alias} ON true"
            f" WHERE {self._alias}.{_THERE} IS NULL OR ({condition})), {self._taken()},"
            f" {PREFIX}_i AS (INSERT INTO {self._written} ({listed(stored)}) SELECT {listed(stored)} FROM {PREFIX}"
            f" RETURNING {PREFIX}) {_check(self._table, _TAKEN)}"
        )

    def _found(self, selected: str) -> str:
        """The queries for the rows that an UPDATE or a DELETE means, where they are, and what is selected of them.

        Whether a row is gone is asked when it is found: PostgreSQL takes that for a reason not to go by the index.
        """
        where = self._source.find(("WHERE",))
        condition = "true" if where is None else self._piece(self._source.tokens[where].end, self._end)
        rows = f", {self._rows}" if self._rows else ""
        return (
            f"{_FOUND} AS MATERIALIZED ("
            f"SELECT {self._alias}.ctid AS {_BASE}, NULL::pg_catalog.tid AS {_OVERLAID}, {selected}"
            f" FROM {self._own} AS {self._alias}{rows} WHERE ({condition})"
            f" UNION ALL SELECT NULL, {self._alias}.{PREFIX}, {selected}"
            f" FROM {self._written} AS {self._alias}{rows} WHERE ({condition})),"
            f" {PREFIX} AS MATERIALIZED (SELECT * FROM {_FOUND} AS f"
            f" WHERE f.{_BASE} IS NULL OR {self._not_gone(f'f.{_BASE}')})"
        )

    def _not_gone(self, place: str) -> str:
        """As it is asked in the triggers: for each row, by the index."""
        return (
            f"(SELECT true FROM {_HELPERS}.gone AS g"
            f" WHERE g.relid = {self._table.oid}::pg_catalog.oid AND g.id = {place}) IS NULL"
        )

    def _taken(self) -> str:
        """The queries that take the rows away that are found."""
        return (
            f"{PREFIX}_g AS (INSERT INTO {_HELPERS}.gone (relid, id) SELECT {self._table.oid}, {_BASE}"
            f" FROM {PREFIX} WHERE {_BASE} IS NOT NULL RETURNING true),"
            f" {PREFIX}_d AS (DELETE FROM {self._written} AS t WHERE t.{PREFIX} = ANY (ARRAY("
            f"SELECT {_OVERLAID} FROM {PREFIX} WHERE {_OVERLAID} IS NOT NULL)) RETURNING true)"
        )

    def _old(self, column: str) -> str:
        return f"{self._alias}.{identifier(column)}"

    def _cast(self, column: str, expression: str) -> str:
        return f"CAST(({expression}) AS {self._types[column]})"

    def _values(self) -> list[str]:
        """The expressions of the only row that is inserted."""
        source = self._source
        values = source.find(("VALUES",))
        closing = None if values is None else source.find((")",), values)
        assert values is not None
        assert closing is not None
        commas = [n for n in range(values + 2, closing) if source.depths[n] == 1 and source.word(n) == ","]
        between = [values + 1, *commas, closing]
        return [
            self._piece(source.tokens[one].end, source.tokens[other].start)
            for one, other in itertools.pairwise(between)
        ]

    def _assigned(self, targets: Sequence[Body]) -> Mapping[str, str]:
        """The new values of columns, by their names."""
        source = self._source
        places = [source.number(target["ResTarget"]["location"]) for target in targets]
        where = source.find(("WHERE",), places[-1])
        behind = self._end if where is None else source.tokens[where].start
        ends = [*(source.tokens[place - 1].start for place in places[1:]), behind]
        return {
            target["ResTarget"]["name"]: self._cast(
                target["ResTarget"]["name"], self._piece(source.tokens[place + 1].end, end)
            )
            for target, place, end in zip(targets, places, ends, strict=True)
        }

    def _piece(self, start: int, end: int) -> str:
        # A comment may end at the line's end.
        return self._source.piece(start, end, self._edits).strip(" ") + ("\n" if "--" in self._form.sql else "")

    def _filled_in(self) -> Iterator[Edit]:
        """The parameters' rows in place of the parameters; behind ON CONFLICT they are in the proposed rows."""
        conflict = self._form.body.get("onConflictClause", {}).get("location", len(self._source.text))
        for node in parameters(self._form.body):
            place = node.get("location", 0)
            token = self._source.tokens[self._source.number(place)]
            yield token.start, token.end, f"{_ROWS if place < conflict else 'excluded'}.{_COLUMN}{node['number']}"


def _place(table: Table) -> str:
    """The view of a table's overlay."""
    return f"{identifier(written_schema(table.schema))}.{identifier(table.name)}"


def _check(table: Table, others: str) -> str:
    rows = f"(SELECT pg_catalog.array_agg({PREFIX}) FROM {PREFIX}_i)"
    return f"SELECT FROM {PREFIX}_i WHERE (SELECT {_HELPERS}.rows_written_{table.oid}({rows}, {others}))"


def _nodes(body: Body, kind: str) -> Iterator[Body]:
    stack: list[Any] = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            if kind in value:
                yield value[kind]
            else:
                stack += value.values()
