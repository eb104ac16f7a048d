"""What is sent for a statement: its form, met with the tables as they are. Once for each text, catalog and path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, final

from pytest_dsql.local.adjudicator.sandbox.batches import Batch, batch
from pytest_dsql.local.adjudicator.sandbox.captures import Capture, capture, captures
from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form, Name, analyzes
from pytest_dsql.local.adjudicator.sandbox.forms import form as form_of
from pytest_dsql.local.adjudicator.sandbox.generated import assigns_generated
from pytest_dsql.local.adjudicator.sandbox.grouping import grouped
from pytest_dsql.local.adjudicator.sandbox.locks import locked
from pytest_dsql.local.adjudicator.sandbox.names import hidden_schema
from pytest_dsql.local.adjudicator.sandbox.rowsets import Whole, whole
from pytest_dsql.local.adjudicator.sandbox.texts import Edit, Source, identifier, listed, literal
from pytest_dsql.local.adjudicator.sandbox.upserts import arbiters, upsert
from pytest_dsql.local.dialect.tree import string


@final
@dataclass(frozen=True, slots=True)
class Text:
    """What is sent in place of the client's text, with the same parameters, and what its answer's rows are."""

    sql: str | None = None  #: None: the client's own text
    #: Whose the last column is: the client's; or a captured row, as text; or keys, as the JSON text
    #: `{"locked": [...], "shared": [...]}`, where both may hold nulls. It never reaches the client.
    last: Literal["client", "captured", "keys"] = "client"
    rows: bool = True  #: whether the client sees rows, and their description; if not, the answer is only the tag
    insert: bool = False  #: PostgreSQL's tag is `SELECT n`, the client's is `INSERT 0 n`
    tag: str | None = None  #: the tag that the client gets


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent for a statement."""

    form: Form
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    inserts: tuple[Table, ...]  #: of `writes`: where a unique key may appear
    #: Names of tables: where somebody has freed keys after a transaction's snapshot, or has had rows refer to others,
    #: PostgreSQL may do otherwise than on the snapshot.
    watched: frozenset[str]
    may_write: bool  #: it has `writes`, or takes locks, or calls a function that may write
    physical: Text
    sandbox: Text
    capture: Capture | None  #: None: replayed by `physical`, or by `sandbox` in the sandbox
    #: What becomes of a row depends on those before it, and the sandbox writes rows in another order.
    in_order: bool = False
    explains: bool = False  #: EXPLAIN without ANALYZE: what it tells is of the tables
    batch: Batch | None = None  #: how many executions are replayed in the sandbox at once
    whole: Whole | None = None  #: how one is that has written many rows


def plan(form: Form, catalog: Catalog, schemas: Sequence[str]) -> Plan:
    """Make the plan of a statement for a session whose search path is `schemas` (as `current_schemas(false)`)."""

    def found(names: frozenset[Name]) -> tuple[Table, ...]:
        tables = (catalog.find(schema, name, schemas) for schema, name in sorted(names, key=str))
        return tuple(table for table in tables if table is not None)

    writes = found(form.writes)
    inserts = tuple(table for table in found(form.inserts) if _makes_keys(form, table))
    physical, sandbox, again, together, at_once = Text(), Text(), None, None, None
    explains = False
    if form.command == "ConstraintsSetStmt":
        sandbox = Text(_set_constraints(form), rows=False, tag="SET CONSTRAINTS")
    elif form.places and not (explains := form.command == "ExplainStmt" and not analyzes(form.body)):
        target = _target(form, catalog, schemas)
        again = capture(form, target) if target is not None and captures(form, catalog, target) else None
        if again is not None or _is_edited(form, target) or _copied(form, catalog, schemas) is not None:
            physical, sandbox = _texts(form, catalog, schemas, target, captured=again is not None)
        if target is not None and again is None:
            together, at_once = batch(form, target, catalog), whole(form, target, catalog)
    return Plan(
        form=form,
        reads=found(form.reads),
        writes=writes,
        inserts=inserts,
        watched=frozenset(table.name for table in (*inserts, *_children(form, writes, catalog))),
        may_write=bool(writes or form.locks or form.functions & catalog.client_functions)
        or any(name in catalog.calling_views for _, name in form.reads),
        physical=physical,
        sandbox=sandbox,
        capture=again,
        in_order=_in_order(form, inserts),
        explains=explains,
        batch=together,
        whole=at_once,
    )


def _makes_keys(form: Form, table: Table) -> bool:
    """Whether a statement may make unique keys in a table that it inserts into, or updates."""
    return form.command != "UpdateStmt" or _removes_keys(form, table)


def _in_order(form: Form, inserts: Sequence[Table]) -> bool:
    """Whether an INSERT of several rows may give some that are there other unique keys."""
    assigned = form.body.get("onConflictClause", {}).get("targetList", ())
    select = form.body.get("selectStmt", {}).get("SelectStmt", {})
    return len(select.get("valuesLists", ())) != 1 and any(
        target["ResTarget"].get("name") in table.key_columns for target in assigned for table in inserts
    )


def _removes_keys(form: Form, table: Table) -> bool:
    """Whether a statement may remove rows, or unique keys of rows, in a table that it writes."""
    if "withClause" in form.body:
        return True
    if form.command == "UpdateStmt":
        assigned = form.body["targetList"]
    elif form.command == "InsertStmt":
        assigned = form.body.get("onConflictClause", {}).get("targetList", ())
    else:
        return form.command != "CopyStmt"
    return any(target["ResTarget"].get("name") in table.key_columns for target in assigned)


def _children(form: Form, writes: Sequence[Table], catalog: Catalog) -> Iterable[Table]:
    """The tables whose rows may refer to what a statement removes, and those that may refer to these."""
    parents = [table for table in writes if table.referenced and _removes_keys(form, table)]
    children: dict[int, Table] = {}
    while parents:
        for key in parents.pop().referenced:
            child = catalog.tables.get(key.table)
            if child is not None and child.oid not in children:
                children[child.oid] = child
                parents.append(child)
    return children.values()


def _is_edited(form: Form, target: Table | None) -> bool:
    """Whether a statement can need another text than the client's: most don't, and finding their tokens takes time."""
    return bool(
        form.columns
        or form.locks
        or form.groups
        or form.upserts
        or any(place.schema is not None for place in form.places)
        or (target is not None and (target.generated or target.identities))
    )


def _texts(
    form: Form, catalog: Catalog, schemas: Sequence[str], target: Table | None, *, captured: bool
) -> tuple[Text, Text]:
    """The texts for the tables and for the sandbox."""
    source = Source(form.sql)
    if target is not None and assigns_generated(form, target):
        return Text(), Text(f"EXPLAIN {source.piece(0, source.end, [_own(form, target, source)])}")
    if form.command == "ExplainStmt" and form.upserts:
        return Text(), Text(_explained(source, catalog, schemas))
    if _gives_up(form, target):
        return Text(), Text("SELECT pytest_dsql_engine_sandbox.give_up()")
    copied = _copied(form, catalog, schemas)
    if copied is not None:
        return Text(), Text(source.piece(0, source.end, [_selected(form, copied, source)]))
    edits = [*_redirected(form, catalog, source), *_unlocked(form, source), *grouped(form, catalog, schemas, source)]
    rows = "returningClause" in form.body
    upserted = upsert(form, target, source, edits, captured=captured) if target is not None else None
    if captured:
        last = _captured(form, source)
        physical = Text(source.piece(0, source.end, [last]), "captured", rows)
        sql, insert = upserted or (source.piece(0, source.end, [*edits, last]), False)
        return physical, Text(sql, "captured", rows, insert)
    physical = Text()
    if form.locks:
        marking = locked(form, catalog, schemas, source, edits)
        if marking:
            return Text(marking[0], "keys"), Text(marking[1], "keys")
        physical = Text(_patient(source))
    if upserted is not None:
        sql, insert = upserted
        return physical, Text(sql, rows=rows, insert=insert)
    return physical, Text(source.piece(0, source.end, edits) if edits else None)


def _explained(source: Source, catalog: Catalog, schemas: Sequence[str]) -> str:
    """EXPLAIN ANALYZE of the text that stands for the explained one."""
    start = source.find(("INSERT", "WITH"), 1)
    begin = source.end if start is None else source.tokens[start].start
    sql = source.piece(begin, source.end)
    inner = plan(form_of(sql), catalog, schemas).sandbox.sql
    return source.piece(0, begin) + (sql if inner is None else inner)


def _set_constraints(form: Form) -> str:
    names = ", ".join(literal(name["RangeVar"]["relname"]) for name in form.body.get("constraints", ()))
    immediate = "false" if form.body.get("deferred") else "true"
    return f"SELECT pytest_dsql_engine_sandbox.set_constraints(ARRAY[{names}]::text[], {immediate})"


def _gives_up(form: Form, target: Table | None) -> bool:
    """Whether a statement is more than the sandbox can do: its transaction has lost then."""
    if form.upserts == 0:
        return target is not None and bool(target.identities) and form.body.get("override") == "OVERRIDING_USER_VALUE"
    clause = form.body.get("onConflictClause")
    return (
        target is None
        or clause is None
        or form.upserts > 1
        or (target.extra_unique and arbiters(clause, target) is None)
    )


def _target(form: Form, catalog: Catalog, schemas: Sequence[str]) -> Table | None:
    if form.command not in ("InsertStmt", "UpdateStmt", "DeleteStmt"):
        return None
    relation = form.body["relation"]
    table = catalog.find(relation.get("schemaname"), relation["relname"], schemas)
    return None if table is None or table.view else table


def _redirected(form: Form, catalog: Catalog, source: Source) -> Iterator[Edit]:
    """Names with a schema mean the helpers."""
    for place in (*form.places, *form.columns):
        if place.schema is not None and catalog.find(place.schema, place.name, ()) is not None:
            number = source.number(place.start)
            # In front of the schema there may be the database's name.
            if source.word(number + 3) == "." and place in form.places:
                number += 2
            token = source.tokens[number]
            yield token.start, token.end, identifier(hidden_schema(place.schema))


def _copied(form: Form, catalog: Catalog, schemas: Sequence[str]) -> Table | None:
    """The table that COPY TO names."""
    relation = form.body.get("relation")
    if form.command != "CopyStmt" or form.body.get("is_from") or relation is None:
        return None
    table = catalog.find(relation.get("schemaname"), relation["relname"], schemas)
    return None if table is None or table.view else table


def _selected(form: Form, table: Table, source: Source) -> Edit:
    """A query in place of the table that COPY TO names, with its columns: PostgreSQL copies no view."""
    first, last = source.relation(form.body["relation"].get("location", 0))
    names = [string(name) or "" for name in form.body.get("attlist", ())]
    if names:
        closing = source.find((")",), source.number(last))
        assert closing is not None
        last = source.tokens[closing].end
    view = f"{identifier(hidden_schema(table.schema))}.{identifier(table.name)}"
    return first, last, f"(SELECT {listed(names or table.stored)} FROM {view})"


def _own(form: Form, target: Table, source: Source) -> Edit:
    """The statement's target by its full name, so that no helper is meant."""
    first, last = source.relation(form.body["relation"].get("location", 0))
    return first, last, f"{identifier(target.schema)}.{identifier(target.name)}"


def _unlocked(form: Form, source: Source) -> Iterator[Edit]:
    """The sandbox takes no locks."""
    if form.locks:
        for first, _, behind in source.locking_clauses():
            edit = source.blank(first, behind)
            if edit:
                yield edit


def _patient(source: Source) -> str | None:
    """The text without NOWAIT and SKIP LOCKED, which find nothing to skip where nobody waits."""
    edits = [edit for _, tables, behind in source.locking_clauses() if (edit := source.blank(tables, behind))]
    return source.piece(0, source.end, edits) if edits else None


def _captured(form: Form, source: Source) -> Edit:
    relation = form.body["relation"]
    alias = identifier(relation.get("alias", {}).get("aliasname") or relation["relname"])
    returned = ", " if "returningClause" in form.body else " RETURNING "
    return source.end, source.end, f"{returned}ROW({alias}.*)::text"
