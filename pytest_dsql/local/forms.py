"""What form a statement has: what time, faults and cost depend on, told once per text from its parse tree."""

from __future__ import annotations

import functools
import re
from typing import Any, Final, Literal, TypeAlias

from pytest_dsql.local.dialect.judgement import Kind
from pytest_dsql.local.dialect.libpg_query import ParseError, parse
from pytest_dsql.local.dialect.tree import decode, only

#: `point_read` is a query by equality with a value, neither sorted nor grouped nor combined with others.
Form: TypeAlias = Literal[
    "begin", "point_read", "read", "insert", "update", "delete", "ddl", "commit", "rollback", "other"
]

_WRITE: Final = re.compile(rb'"(Insert|Update|Delete)Stmt":')
_WRITES: Final[dict[bytes, Form]] = {b"Insert": "insert", b"Update": "update", b"Delete": "delete"}
_BY_KIND: Final[dict[Kind, Form]] = {
    "begin": "begin",
    "commit": "commit",
    "rollback": "rollback",
    "ddl": "ddl",
    "set": "other",
    "other": "other",
}
#: What makes a query more than a look-up, in a SelectStmt.
_MORE: Final = frozenset({"groupClause", "sortClause", "havingClause", "distinctClause", "windowClause", "withClause"})


def form_of(sql: str, kind: Kind) -> Form:
    """The form of a statement of this text and kind."""
    known = _BY_KIND.get(kind)
    return known if known is not None else _form(sql, kind)


@functools.lru_cache(maxsize=4_096)
def _form(sql: str, kind: Kind) -> Form:
    try:
        tree = parse(sql.encode())
    except (ParseError, UnicodeEncodeError, ValueError):
        return "other"
    if kind == "dml":
        # The outermost comes first; of a query that writes in a WITH clause, the first that it writes.
        write = _WRITE.search(tree)
        return _WRITES[write[1]] if write else "insert"  # COPY ... FROM
    return "point_read" if _is_point_read(tree) else "read"


def _is_point_read(tree: bytes) -> bool:
    if tree.count(b'"SelectStmt":') != 1:
        return False
    statements = decode(tree).get("stmts", ())
    name, query = only(statements[0]["stmt"]) if statements else ("", {})
    if name != "SelectStmt" or not query.get("fromClause") or not _MORE.isdisjoint(query):
        return False
    return any(_is_equality(condition) for condition in _conditions(query.get("whereClause")))


def _conditions(clause: Any) -> list[Any]:
    """The conditions that all have to hold."""
    if not clause:
        return []
    body = clause.get("BoolExpr")
    if body and body["boolop"] == "AND_EXPR":
        return [inner for argument in body["args"] for inner in _conditions(argument)]
    return [clause]


def _is_equality(condition: Any) -> bool:
    body = condition.get("A_Expr", {})
    if body.get("kind") != "AEXPR_OP" or body.get("name") != [{"String": {"sval": "="}}]:
        return False
    sides = [body.get("lexpr", {}), body.get("rexpr", {})]
    return any("ColumnRef" in side for side in sides) and any(_is_value(side) for side in sides)


def _is_value(node: Any) -> bool:
    while "TypeCast" in node:
        node = node["TypeCast"].get("arg", {})
    return "A_Const" in node or "ParamRef" in node
