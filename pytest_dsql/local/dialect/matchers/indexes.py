"""Matchers of rules/indexes.toml: CREATE INDEX."""

from __future__ import annotations

import itertools

from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import bodies


@matcher
def _index_using(at: Candidate) -> Fields | None:
    # The tree says `btree` in either case, so the word itself decides. It is reserved, hence never a name, and stands
    # before the first parenthesis.
    words = itertools.takewhile(lambda word: word != "(", (token.word for token in at.statement.scan()))
    return MATCH if "USING" in words else None


@matcher
def _index_mode(at: Candidate) -> Fields | None:
    # A session can allow it on empty tables, which PostgreSQL has to decide about - unless DSQL refuses it anyway.
    if at.statement.is_async:
        return None
    if at.statement.name == "CreateSchemaStmt":
        return MATCH  # nothing there can be asynchronous
    keys = list(bodies(at.body.get("indexParams"), "IndexElem"))
    refused = any(key.get("opclass") or key.get("ordering") in ("SORTBY_ASC", "SORTBY_DESC") for key in keys)
    refused = refused or len(keys) > at.options["most"] or "options" in at.body or "tableSpace" in at.body
    return MATCH if refused else None


@matcher
def _index_expression(at: Candidate) -> Fields | None:
    return MATCH if any("expr" in key for key in bodies(at.body.get("indexParams"), "IndexElem")) else None


@matcher
def _index_sort_order(at: Candidate) -> Fields | None:
    keys = bodies(at.body.get("indexParams"), "IndexElem")
    return MATCH if any(key.get("ordering") in ("SORTBY_ASC", "SORTBY_DESC") for key in keys) else None


@matcher
def _index_operator_class(at: Candidate) -> Fields | None:
    return MATCH if any(key.get("opclass") for key in bodies(at.body.get("indexParams"), "IndexElem")) else None


@matcher
def _index_key_count(at: Candidate) -> Fields | None:
    most = at.options["most"]
    return {"most": most} if len(at.body.get("indexParams", ())) > most else None


@matcher
def _index_collation(at: Candidate) -> Fields | None:
    return MATCH if any(key.get("collation") for key in bodies(at.body.get("indexParams"), "IndexElem")) else None
