"""Catalogs that hold things of the engine's own: where clients query them, views are meant that show nothing of it."""

from __future__ import annotations

import re
from typing import Final

from pytest_dsql.local.dialect.libpg_query import Token
from pytest_dsql.local.dialect.tree import Statement, strings, walk

#: Where the views of these names are (`adjudicator/sandbox/hiding.sql`).
_SCHEMA: Final = b"pytest_dsql_engine_catalog"
_CATALOGS: Final = (
    *("pg_class", "pg_namespace", "pg_type", "pg_proc", "pg_constraint", "pg_attribute", "pg_attrdef", "pg_index"),
    *("pg_rewrite", "pg_depend", "pg_shdepend", "pg_init_privs", "pg_db_role_setting"),
)
_NAMED: Final = re.compile(b'"relname":"(?:' + "|".join(_CATALOGS).encode() + b')"|"SVFOP_CURRENT_SCHEMA"')

#: A statement that names one of these columns gets views that have them, and show them where all columns are asked for.
_WITH_SYSTEM_COLUMNS: Final = b"pytest_dsql_engine_catalog_system"
_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"})


def names_catalog(tree: bytes) -> bool:
    """Whether a parse tree, as JSON, names one of the catalogs, or what PostgreSQL knows without its catalog."""
    return _NAMED.search(tree) is not None


def hidden(statement: Statement) -> list[tuple[int, int, bytes]]:
    """The edits `(start, end, replacement)` that put the views in place of the catalogs."""
    nodes = list(walk(statement))
    queries = {body["ctename"] for name, body in nodes if name == "CommonTableExpr"}
    asked = any(name == "ColumnRef" and _SYSTEM_COLUMNS.intersection(strings(body["fields"])) for name, body in nodes)
    schema = _WITH_SYSTEM_COLUMNS if asked else _SCHEMA
    edits = []
    starts: dict[int, Token] = {}
    for name, body in nodes:
        if name == "ColumnRef":
            fields = strings(body["fields"])
            if len(body["fields"]) == 3 and fields[0] == "pg_catalog" and fields[1] in _CATALOGS:
                # The table's name with its schema, as SQLAlchemy writes it: now the view's.
                starts = starts or {token.start: token for token in statement.scan()}
                if (token := starts.get(body.get("location", 0))) is not None:
                    edits.append((token.start, token.end, schema))
        elif name == "SQLValueFunction" and body.get("op") == "SVFOP_CURRENT_SCHEMA":
            # As a word it is PostgreSQL's own function; with parentheses it is looked up, and is the engine's.
            starts = starts or {token.start: token for token in statement.scan()}
            if (token := starts.get(body.get("location", 0))) is not None:
                edits.append((token.end, token.end, b"()"))
        elif name == "RangeVar" and body.get("relname") in _CATALOGS:
            if "schemaname" not in body and body["relname"] in queries:
                continue  # a WITH query of that name
            starts = starts or {token.start: token for token in statement.scan()}
            token = starts.get(body.get("location", 0))
            if token is not None and body.get("schemaname", "pg_catalog") == "pg_catalog":
                if "schemaname" in body:
                    edits.append((token.start, token.end, schema))
                else:
                    edits.append((token.start, token.start, schema + b"."))
    return edits
