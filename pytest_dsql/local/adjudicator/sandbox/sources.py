"""The tables that a query reads its rows from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog, Table
from pytest_dsql.local.dialect.tree import Body, only


def tables_of(select: Body, catalog: Catalog, schemas: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Yield the clients' tables in a query's FROM clause with the names that the query calls them by; no views."""
    queries = {cte["CommonTableExpr"]["ctename"] for cte in select.get("withClause", {}).get("ctes", ())}
    stack = list(select.get("fromClause", ()))
    while stack:
        kind, body = only(stack.pop())
        if kind == "JoinExpr":
            stack += (body["larg"], body["rarg"])
        elif kind == "RangeVar" and ("schemaname" in body or body["relname"] not in queries):
            table = catalog.find(body.get("schemaname"), body["relname"], schemas)
            if table is not None and not table.view:
                yield body.get("alias", {}).get("aliasname") or body["relname"], table
