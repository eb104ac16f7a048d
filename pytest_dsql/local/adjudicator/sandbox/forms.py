"""What a statement does to which tables, told from its text alone: once for each text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

from pytest_dsql.local.adjudicator.sandbox.names import PREFIX
from pytest_dsql.local.dialect.libpg_query import ParseError, parse
from pytest_dsql.local.dialect.tree import Body, decode, integer, only, string

#: As a name stands in the text: its schema, None where it has none, and the name, folded as PostgreSQL folds it.
Name: TypeAlias = "tuple[str | None, str]"

Strength: TypeAlias = Literal["update", "share"]


class Place(NamedTuple):
    """Where a relation is named."""

    schema: str | None
    name: str
    start: int  #: byte offset


@final
@dataclass(frozen=True, slots=True)
class Form:
    """A statement's form. Its relations leave out the names of its own WITH queries."""

    sql: str
    command: str  #: the parse tree's name: `SelectStmt`, `InsertStmt`, ...; empty where the text doesn't parse
    reads: frozenset[Name]
    writes: frozenset[Name]  #: INSERT, UPDATE, DELETE, COPY FROM, also inside WITH and EXPLAIN ANALYZE
    inserts: frozenset[Name]  #: of `writes`: where a unique key may appear (INSERT, COPY FROM, UPDATE)
    locks: frozenset[Strength]  #: FOR UPDATE, FOR KEY SHARE, anywhere in it
    functions: frozenset[str]  #: the names of the functions that it calls, without their schemas
    hidden: bool  #: it names something of the engine's own, which to a client doesn't exist
    picks: bool  #: it has a LIMIT, OFFSET or DISTINCT ON: the plan may decide which rows are meant
    defaults: bool  #: DEFAULT stands for a value in it
    upserts: int  #: how many ON CONFLICT it has
    places: tuple[Place, ...] = field(repr=False)  #: where relations are named, with and without a schema
    columns: tuple[Place, ...] = field(repr=False)  #: where columns are named with schema and table
    groups: tuple[Body, ...] = field(repr=False)  #: its queries that have a GROUP BY
    body: Body = field(repr=False)


_STRENGTHS: Final[dict[str, Strength]] = {"LCS_FORUPDATE": "update", "LCS_FORKEYSHARE": "share"}
_WRITING: Final = ("InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt")


def form(sql: str) -> Form:
    """Tell the form of one statement, as it would be sent to PostgreSQL. Never raises on any text."""
    try:
        statements = decode(parse(sql.encode())).get("stmts", [])
    except (ParseError, UnicodeEncodeError):
        statements = []
    command, body = only(statements[0]["stmt"]) if statements else ("", {})
    reading = _Reading()
    reading.read(command, body)
    writes = frozenset(reading.inserted | reading.updated | reading.deleted)
    return Form(
        sql=sql,
        command=command,
        reads=frozenset(reading.named),
        writes=writes,
        inserts=frozenset(reading.inserted | reading.updated),
        locks=frozenset(reading.locks),
        functions=frozenset(reading.functions),
        hidden=reading.hidden,
        picks=reading.picks,
        defaults=reading.defaults,
        upserts=reading.upserts,
        places=tuple(reading.places),
        columns=tuple(reading.columns),
        groups=tuple(reading.groups),
        body=body,
    )


@final
class _Reading:
    """Goes through a parse tree; what it has met is in its attributes."""

    def __init__(self) -> None:
        self.named: set[Name] = set()
        self.inserted: set[Name] = set()
        self.updated: set[Name] = set()
        self.deleted: set[Name] = set()
        self.locks: set[Strength] = set()
        self.functions: set[str] = set()
        self.places: list[Place] = []
        self.columns: list[Place] = []
        self.groups: list[Body] = []
        self.hidden = self.picks = self.defaults = False
        self.upserts = 0
        # No recursion: expressions can be nested deeper than Python likes. With each node go the names of the WITH
        # queries that can be seen from it.
        self._stack: list[tuple[str, Any, frozenset[str]]] = []

    def read(self, command: str, body: Body) -> None:
        self._stack.append((command, body, frozenset()))
        while self._stack:
            name, value, queries = self._stack.pop()
            if isinstance(value, list):
                # A long list of values would take most of the time.
                self._stack.extend((name, item, queries) for item in value if "A_Const" not in item)
            elif isinstance(value, dict):
                self._node(name, value, queries)

    def _node(self, name: str, node: Body, queries: frozenset[str]) -> None:
        left_out: tuple[str, ...] = ()
        match name if name in _NOTED else None:
            case "SelectStmt" | "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt":
                queries = self._with(node, queries)
                left_out = ("withClause", "relation")
                if name in _WRITING:
                    self._target(name, node["relation"])
                self.picks = self.picks or _picks(node)
                self.upserts += "onConflictClause" in node
                if "groupClause" in node:
                    self.groups.append(node)
            case "CopyStmt":
                left_out = ("relation",)
                if "relation" in node:
                    if node.get("is_from"):
                        self._target("InsertStmt", node["relation"])
                    else:
                        self._relation(node["relation"], queries)
            case "ExplainStmt":
                if not analyzes(node):
                    # Nothing is written, and no lock is taken.
                    self._explained(node)
                    return
            case "RangeVar" if "relname" in node:
                self._relation(node, queries)
            case "LockingClause":
                left_out = ("lockedRels",)
                if node["strength"] in _STRENGTHS:
                    self.locks.add(_STRENGTHS[node["strength"]])
            case "FuncCall":
                self._function([string(part) or "" for part in node["funcname"]])
            case "ColumnRef":
                self._column(node)
            case "TypeName":
                self.hidden = self.hidden or _hidden(node.get("names"))
            case "SetToDefault":
                self.defaults = True
        for key, child in node.items():
            if key not in left_out and isinstance(child, dict | list):
                self._stack.append((_TYPES.get(key, key), child, queries))

    def _explained(self, node: Body) -> None:
        inner = _Reading()
        inner.read(*only(node["query"]))
        self.named |= inner.named | inner.inserted | inner.updated | inner.deleted
        self.hidden = inner.hidden
        self.places, self.columns, self.groups = inner.places, inner.columns, inner.groups

    def _with(self, node: Body, queries: frozenset[str]) -> frozenset[str]:
        clause = node.get("withClause", {})
        inner = [cte["CommonTableExpr"] for cte in clause.get("ctes", ())]
        every = queries | {cte["ctename"] for cte in inner}
        for cte in inner:
            self._stack.append(("CommonTableExpr", cte, every if clause.get("recursive") else queries))
            queries = queries | {cte["ctename"]}
        return every

    def _target(self, command: str, relation: Body) -> None:
        name = (relation.get("schemaname"), relation["relname"])
        met = {"InsertStmt": self.inserted, "UpdateStmt": self.updated, "DeleteStmt": self.deleted}
        met.get(command, self.inserted).add(name)
        self._place(relation)

    def _relation(self, relation: Body, queries: frozenset[str]) -> None:
        schema, name = relation.get("schemaname"), relation["relname"]
        if schema is not None or name not in queries:
            self.named.add((schema, name))
            self._place(relation)

    def _place(self, relation: Body) -> None:
        schema = relation.get("schemaname")
        self.hidden = self.hidden or (schema or "").startswith(PREFIX)
        self.places.append(Place(schema, relation["relname"], relation.get("location", 0)))

    def _function(self, parts: list[str]) -> None:
        self.hidden = self.hidden or parts[0].startswith(PREFIX)
        self.functions.add(parts[-1])

    def _column(self, node: Body) -> None:
        parts = [string(part) for part in node["fields"]]
        if len(parts) >= 3 and parts[0] is not None and parts[1] is not None:
            self.columns.append(Place(parts[0], parts[1], node.get("location", 0)))


#: Fields that hold their node without a word on its type. Where they do have one, it is found inside.
_TYPES: Final = {
    "larg": "SelectStmt",
    "rarg": "SelectStmt",
    "funccall": "FuncCall",
    "typeName": "TypeName",
    "relation": "RangeVar",
}

_NOTED: Final = frozenset(
    {
        *("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "CopyStmt", "ExplainStmt", "RangeVar"),
        *("LockingClause", "FuncCall", "ColumnRef", "TypeName", "SetToDefault"),
    }
)


def _picks(select: Body) -> bool:
    return "limitCount" in select or "limitOffset" in select or any(select.get("distinctClause", [{}]))


def _hidden(names: list[Body] | None) -> bool:
    return any((string(name) or "").startswith(PREFIX) for name in names or ())


def analyzes(explain: Body) -> bool:
    """Whether an EXPLAIN runs what it explains."""
    for element in _options(explain):
        if element["defname"] == "analyze":
            argument = element.get("arg")
            return argument is None or (string(argument) or "").lower() in ("on", "true") or integer(argument) == 1
    return False


def _options(explain: Body) -> Iterator[Body]:
    for option in explain.get("options", ()):
        yield option["DefElem"]
