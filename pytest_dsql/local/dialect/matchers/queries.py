"""Matchers of rules/queries.toml: clauses and functions inside queries."""

from __future__ import annotations

from pytest_dsql.local.dialect import locking
from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import strings, system_name


@matcher
def _select_into(at: Candidate) -> Fields | None:
    return MATCH if at.body.get("intoClause") else None


@matcher
def _locking_clause(at: Candidate) -> Fields | None:
    return MATCH if locking.reaches_table(at.body, at.options["strengths"], at.statement) else None


@matcher
def _function(at: Candidate) -> Fields | None:
    name = system_name(at.body.get("funcname"))
    return {"function": name} if name in at.options["functions"] else None


@matcher
def _engine_function(at: Candidate) -> Fields | None:
    name = strings(at.body.get("funcname"))
    return {"function": ".".join(name)} if any(part.startswith(at.options["prefix"]) for part in name) else None


@matcher
def _engine_relation(at: Candidate) -> Fields | None:
    names = [name for name in (at.body.get("schemaname"), at.body.get("relname")) if name]
    return {"relation": ".".join(names)} if any(name.startswith(at.options["prefix"]) for name in names) else None


@matcher
def _locking_clause_early(at: Candidate) -> Fields | None:
    if not locking.reaches_table(at.body, at.options["strengths"], at.statement):
        return None
    return None if locking.has_equality(at.body) else MATCH
