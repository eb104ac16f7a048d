"""Whether a locking clause reaches a table: only then would a plan take the lock, and only then DSQL refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_dsql.local.dialect.tree import Body, Statement, only, strings, walk

#: Clauses beside which PostgreSQL's analysis refuses a locking clause, before there is a plan.
_ANALYSED: Final = ("distinctClause", "groupClause", "havingClause", "windowClause")


def reaches_table(select: Body, strengths: Sequence[str], statement: Statement) -> bool:
    """Tell whether one of the query's locking clauses has one of the strengths and would lock rows of a table."""
    if any(select.get(key) for key in _ANALYSED):
        return False
    for clause in select.get("lockingClause", ()):
        clause = clause["LockingClause"]
        if clause["strength"] not in strengths:
            continue
        named = {one["RangeVar"]["relname"] for one in clause.get("lockedRels", ())}
        queries = {cte["ctename"]: cte["ctequery"] for name, cte in walk(statement) if name == "CommonTableExpr"}
        for name, item in _items(select):
            if (not named or name in named) and _is_table(item, frozenset(queries)):
                return True
    return False


def _items(select: Body) -> Iterator[tuple[str | None, Body]]:
    stack = list(select.get("fromClause", ()))
    while stack:
        item = stack.pop()
        kind, body = only(item)
        if kind == "JoinExpr":
            stack += (body["larg"], body["rarg"])
        else:
            alias = body.get("alias", {}).get("aliasname")
            yield alias or body.get("relname"), item


def _is_table(item: Body, queries: frozenset[str]) -> bool:
    kind, body = only(item)
    if kind == "RangeVar":
        # A locking clause does not reach into a WITH query of the same statement.
        return "schemaname" in body or body["relname"] not in queries
    if kind == "RangeTableSample":
        return True
    if kind == "RangeSubselect":
        # It does reach into a subquery.
        return any(_is_table(inner, queries) for _, inner in _items(body["subquery"].get("SelectStmt", {})))
    return False


def has_equality(select: Body) -> bool:
    """Tell whether the query reads one table, with a condition that says what one of its columns equals."""
    items = list(_items(select))
    if len(items) != 1 or "RangeVar" not in items[0][1]:
        return False
    conditions = [select.get("whereClause", {})]
    while conditions:
        condition = conditions.pop()
        both = condition.get("BoolExpr", {})
        if both.get("boolop") == "AND_EXPR":
            conditions += both["args"]
        comparison = condition.get("A_Expr", {})
        if strings(comparison.get("name")) == ["="] and "ColumnRef" in comparison.get("lexpr", {}):
            return True
    return False
