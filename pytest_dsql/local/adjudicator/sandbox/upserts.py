"""INSERT ... ON CONFLICT in the sandbox: views have no unique indexes, so it becomes an UPDATE and an INSERT.

The rows are proposed first, to a view that only answers them: so defaults, casts and the types of parameters are those
of the client's own INSERT, whose text is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dsql.local.adjudicator.sandbox.catalog import Key, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.adjudicator.sandbox.names import PREFIX, hidden_schema, stage_schema
from pytest_dsql.local.adjudicator.sandbox.texts import Edit, Source, identifier, listed
from pytest_dsql.local.dialect.tree import bodies


def upsert(
    form: Form, table: Table, source: Source, edits: Sequence[Edit], *, captured: bool
) -> tuple[str, bool] | None:
    """The text for the sandbox, and whether its tag has to be made an INSERT's; None where it needs no such text."""
    clause = form.body.get("onConflictClause")
    if form.command != "InsertStmt" or clause is None:
        return None
    keys = arbiters(clause, table)
    if keys is None:
        return None
    begin = source.find(("INSERT",))
    conflict = source.number(clause["location"])
    if begin is None:
        return None
    proposal = _proposal(form, table, source, edits, begin, conflict)
    given = source.piece(0, source.tokens[begin].start, edits).strip()
    queries = f"{given}, " if given else "WITH "
    returning = source.find(("RETURNING",), conflict)
    relation = form.body["relation"]
    alias = identifier(relation.get("alias", {}).get("aliasname") or relation["relname"])
    answer = source.piece(source.tokens[returning].end, source.end, edits) if returning is not None else ""
    if captured:
        answer = f"{answer}, ROW({alias}.*)::text" if answer else f"ROW({alias}.*)::text"
    target = f"{identifier(hidden_schema(table.schema))}.{identifier(table.name)}"
    if clause["action"] == "ONCONFLICT_NOTHING":
        return _nothing(table, target, alias, keys, f"{queries}{PREFIX} AS MATERIALIZED ({proposal})", answer), False
    key = keys[0]
    do = source.find(("DO",), conflict) or conflict
    where = source.find(("WHERE",), do)
    until = next((source.tokens[n].start for n in (where, returning) if n is not None), source.end)
    setting = source.piece(source.tokens[do + 2].end, until, edits)
    condition = "true"
    if where is not None:
        stop = source.tokens[returning].start if returning is not None else source.end
        condition = source.piece(source.tokens[where].end, stop, edits)
    same = _same(key, alias, "excluded")
    inserted = (
        f"INSERT INTO {target} AS {alias} ({listed(table.stored)}) SELECT {listed(table.stored, 'excluded')}"
        f" FROM excluded WHERE NOT EXISTS (SELECT FROM {target} AS t WHERE {_same(key, 't', 'excluded')})"
        f" RETURNING {alias}.*"
    )
    written = f"SELECT * FROM {PREFIX}_u UNION ALL SELECT * FROM {PREFIX}_i"
    return (
        f"{queries}{PREFIX} AS MATERIALIZED ({proposal}), excluded AS MATERIALIZED ({_once(table, key)}),"
        f" {PREFIX}_u AS (UPDATE {target} AS {alias} SET {setting} FROM excluded WHERE {same} AND ({condition})"
        f" RETURNING {alias}.*), {PREFIX}_i AS ({inserted}) SELECT {answer or '1'} FROM ({written}) AS {alias}"
    ), True


def arbiters(clause: dict[str, object], table: Table) -> list[Key] | None:
    """The keys on which a conflict counts; None where PostgreSQL has to find that there are none, or hard to tell."""
    infer = clause.get("infer")
    if not isinstance(infer, dict):
        return None if table.extra_unique else list(table.keys)
    if "conname" in infer:
        return [key for key in table.keys if key.name == infer["conname"]] or None
    elements = list(bodies(infer.get("indexElems"), "IndexElem"))
    if "whereClause" in infer:
        return None
    columns = {element.get("name") for element in elements}
    return [key for key in table.keys if set(key.columns) == columns][:1] or None


def _proposal(form: Form, table: Table, source: Source, edits: Sequence[Edit], begin: int, conflict: int) -> str:
    start, end = source.relation(form.body["relation"].get("location", 0))
    staged: Edit = (start, end, f"{identifier(stage_schema(table.schema))}.{identifier(table.name)}")
    kept = [edit for edit in edits if not start <= edit[0] < end]
    return source.piece(source.tokens[begin].start, source.tokens[conflict - 1].end, [*kept, staged]) + " RETURNING *"


def _same(key: Key, one: str, other: str) -> str:
    equals = "=" if key.nulls_distinct else "IS NOT DISTINCT FROM"
    return " AND ".join(f"{one}.{identifier(c)} {equals} {other}.{identifier(c)}" for c in key.columns)


def _number(key: Key, name: str) -> str:
    """The how-manieth of the proposed rows with its key a row is; 1 for rows that have none."""
    numbered = f"pg_catalog.row_number() OVER (PARTITION BY {listed(key.columns)})"
    if not key.nulls_distinct:
        return f"{numbered} AS {name}"
    missing = " OR ".join(f"{identifier(c)} IS NULL" for c in key.columns)
    return f"CASE WHEN {missing} THEN 1 ELSE {numbered} END AS {name}"


def _once(table: Table, key: Key) -> str:
    return (
        f"SELECT {listed(table.columns, 'p')} FROM (SELECT *, {_number(key, PREFIX)} FROM {PREFIX}) AS p"
        f" WHERE pytest_dsql_engine_sandbox.only_once(p.{PREFIX})"
    )


def _nothing(table: Table, target: str, alias: str, arbiters: Sequence[Key], queries: str, answer: str) -> str:
    numbers = "".join(f", {_number(key, f'{PREFIX}_{n}')}" for n, key in enumerate(arbiters))
    free = "".join(
        f" AND p.{PREFIX}_{n} = 1 AND NOT EXISTS (SELECT FROM {target} AS t WHERE {_same(key, 't', 'p')})"
        for n, key in enumerate(arbiters)
    )
    returning = f" RETURNING {answer}" if answer else ""
    return (
        f"{queries} INSERT INTO {target} AS {alias} ({listed(table.stored)}) SELECT {listed(table.stored, 'p')}"
        f" FROM (SELECT *{numbers} FROM {PREFIX}) AS p WHERE true{free}{returning}"
    )
