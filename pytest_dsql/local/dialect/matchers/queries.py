"""Matchers of rules/queries.toml: clauses and functions inside queries."""

from __future__ import annotations

from pytest_dsql.local.dialect import locking
from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import Statement, strings, system_name, walk


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
def _cast_type(at: Candidate) -> Fields | None:
    type_ = at.body["typeName"]
    name = system_name(type_.get("names"))
    return {"type": name} if name in at.options["types"] and not type_.get("arrayBounds") else None


@matcher
def _cast_call(at: Candidate) -> Fields | None:
    # Of a text: of other types there are functions of these names.
    name = system_name(at.body.get("funcname"))
    arguments = at.body.get("args", ())
    if name not in at.options["functions"] or len(arguments) != 1:
        return None
    (argument,) = arguments
    cast = argument.get("TypeCast", {}).get("typeName", {})
    text = "sval" in argument.get("A_Const", {}) or system_name(cast.get("names")) in ("text", "varchar")
    return {"function": name} if text else None


@matcher
def _missing_column(at: Candidate) -> Fields | None:
    fields = strings(at.body["fields"])
    if not fields or len(fields) < len(at.body["fields"]) or fields[-1] not in at.options["columns"]:
        return None
    if _names_column(at.statement, fields[-1]):
        return None
    return {"column": ".".join(fields) if len(fields) > 1 else f'"{fields[0]}"'}


def _names_column(statement: Statement, name: str) -> bool:
    """Tell whether something in a statement is given this name, so that a reference may mean that."""
    for kind, body in walk(statement):
        if kind == "ResTarget" and body.get("name") == name:
            return True
        if kind == "ColumnDef" and body.get("colname") == name:
            return True
        if name in strings(body.get("alias", {}).get("colnames")) or name in strings(body.get("aliascolnames")):
            return True
    return False


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
