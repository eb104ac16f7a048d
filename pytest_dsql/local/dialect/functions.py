"""The statements inside an SQL function whose body is written as a text."""

from __future__ import annotations

from pytest_dsql.local.dialect.libpg_query import ParseError, parse, scan
from pytest_dsql.local.dialect.tree import Body, Statement, only, option, raw_statements, string, strings


def written_statements(function: Body) -> list[Statement]:
    """Return the statements of a CREATE FUNCTION's body; none when it is not a text, or no SQL.

    A body that begins with BEGIN ATOMIC or RETURN is part of the function's own tree.
    """
    source = option(function.get("options"), "as") or {}
    language = string(option(function.get("options"), "language"))
    written = strings(source.get("List", {}).get("items"))
    if language != "sql" or len(written) != 1:
        return []
    text = written[0].encode()
    try:
        tree = parse(text)
    except ParseError:
        return []  # PostgreSQL answers the syntax error
    found = []
    for raw in raw_statements(tree):
        name, body = only(raw["stmt"])
        found.append(Statement(name, body, lambda: scan(text)))
    return found
