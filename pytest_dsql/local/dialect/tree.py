"""Reading PostgreSQL's parse trees in their JSON form: nested dictionaries in which defaults are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from pytest_dsql.local.dialect.libpg_query import Token

Body: TypeAlias = "dict[str, Any]"


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a query string."""

    name: str  #: the node's type, such as `SelectStmt`
    body: Body
    scan: Callable[[], Sequence[Token]]  #: its tokens; few rules need them, and they cost as much as all the rest
    is_async: bool = False  #: CREATE INDEX ASYNC, ALTER TABLE ASYNC


#: A name, with its colon; a bracket; a text; a number or a word. Commas and spaces tell nothing more.
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"\s*:?|[{}\[\]]|[^\s{}\[\],:"]+')


def decode(tree: bytes) -> Body:
    """Decode a parse tree. Raises ValueError when it is no JSON object."""
    text = tree.decode("utf-8", "replace")
    try:
        decoded: Body = json.loads(text)
    except RecursionError:
        # Some hundred nested operators are more than the library's decoder takes.
        decoded = _decode_deep(text)
    return decoded


#: How each statement's tree begins. A double quote inside a literal is escaped in JSON, so this only meets structure.
STATEMENT: Final = b'{"stmt":{'


def raw_statements(tree: bytes) -> Iterator[Body]:
    """Decode the statements of a parse tree one after the other; each with its place in the text.

    Decoding a long text's tree at once would take the interpreter for seconds without letting other threads work.
    """
    begin = tree.find(STATEMENT)
    while begin >= 0:
        after = tree.find(STATEMENT, begin + len(STATEMENT))
        # Between two statements stands a comma, behind the last one what closes the list and the tree.
        yield decode(tree[begin : after - 1] if after >= 0 else tree[begin : tree.rindex(b"]}")])
        begin = after


def _decode_deep(text: str) -> Body:
    """Decode JSON of any depth: the decoder that doesn't recurse, at a tenth of the other's speed."""
    result: list[Any] = []
    stack: list[Any] = [result]
    name = ""
    for found in _JSON.finditer(text):
        written = found[0]
        if written[-1] == ":":
            name = json.loads(written[:-1])
        elif written in ("]", "}"):
            stack.pop()
        else:
            opens = written in ("[", "{")
            value = json.loads(written + ("]" if written == "[" else "}") if opens else written)
            if isinstance(stack[-1], dict):
                stack[-1][name] = value
            else:
                stack[-1].append(value)
            if opens:
                stack.append(value)
    decoded: Body = result[0]
    return decoded


def only(node: Body) -> tuple[str, Body]:
    """Return the type and the body of a node: `{"SelectStmt": {...}}` -> `("SelectStmt", {...})`."""
    return next(iter(node.items()))


def bodies(nodes: list[Body] | None, kind: str) -> Iterator[Body]:
    """Yield the bodies of the nodes of one type in a list of nodes."""
    for node in nodes or ():
        if kind in node:
            yield node[kind]


def string(node: Body | None) -> str | None:
    """Return the text of a String node or of a constant text, None for anything else."""
    if not node:
        return None
    if "String" in node:
        return str(node["String"].get("sval", ""))
    constant = node.get("A_Const", {})
    return str(constant["sval"].get("sval", "")) if "sval" in constant else None


def strings(nodes: list[Body] | None) -> list[str]:
    """Return the texts of a list of String nodes: a qualified name."""
    return [text for node in nodes or () if (text := string(node)) is not None]


def integer(node: Body | None) -> int | None:
    """Return the value of an integer, also of one that does not fit 32 bits, None for anything else."""
    fields: Body = (node or {}).get("A_Const", node or {})
    for key in ("Integer", "ival"):
        if key in fields:
            return int(fields[key].get("ival", 0))
    large: Body = fields.get("Float") or fields.get("fval") or {}
    text = str(large.get("fval", ""))
    return int(text) if text.isdigit() else None


def option(options: list[Body] | None, name: str) -> Body | None:
    """Return the argument of the last option of that name, `{}` when it has none, None when it was not given."""
    found = None
    for element in bodies(options, "DefElem"):
        if element.get("defname") == name:
            found = element.get("arg", {})
    return found


def system_name(names: list[Body] | None) -> str | None:
    """Return the last part of a name that can mean a type or function of PostgreSQL: bare, or with pg_catalog."""
    parts = strings(names)
    if len(parts) == 1 or (len(parts) == 2 and parts[0] == "pg_catalog"):
        return parts[-1]
    return None


# The names that PostgreSQL shows for its types (format_type), where they differ from the types' own names.
_SHOWN: Final = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "bpchar": "character",
    "varchar": "character varying",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "char": '"char"',
}


def type_name(type_: Body) -> str:
    """Return a type as PostgreSQL shows it, without its modifiers: `integer[]`, `bit varying`, `money`."""
    name = system_name(type_.get("names"))
    shown = _SHOWN.get(name, name) if name is not None else ".".join(strings(type_.get("names")))
    return f"{shown}[]" if type_.get("arrayBounds") else str(shown)


def columns(body: Body) -> Iterator[Body]:
    """Yield the column definitions of CREATE TABLE, ALTER TABLE ADD COLUMN, and CREATE DOMAIN as if it were one."""
    yield from bodies(body.get("tableElts"), "ColumnDef")
    for command in bodies(body.get("cmds"), "AlterTableCmd"):
        if command["subtype"] == "AT_AddColumn":
            yield command["def"]["ColumnDef"]
    if "domainname" in body:
        yield body


def walk(statement: Statement) -> Iterator[tuple[str, Body]]:
    """Yield every node of a statement with its type, the statement itself first."""
    stack: list[tuple[str, Any]] = [(statement.name, statement.body)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, list):
            stack.extend((name, item) for item in reversed(value))
            continue
        if name[0].isupper():
            yield name, value
        for key, child in value.items():
            if isinstance(child, dict | list):
                # These fields hold their node without a word on its type.
                if name == "SelectStmt" and key in ("larg", "rarg"):
                    key = "SelectStmt"
                elif key == "funccall":
                    key = "FuncCall"
                stack.append((key, child))
