"""Matchers of rules/statements.toml: whole statements."""

from __future__ import annotations

from pytest_dsql.local.dialect.functions import written_statements
from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import bodies, integer, option, string, strings, system_name, type_name


@matcher
def _isolation_level(at: Candidate) -> Fields | None:
    level = string(option(at.body.get("options", at.body.get("args")), "transaction_isolation"))
    return None if level is None or level == "repeatable read" else {"level": level.upper()}


@matcher
def _analyze_form(at: Candidate) -> Fields | None:
    relations = bodies(at.body.get("rels"), "VacuumRelation")
    named = [one for one in relations if one.get("relation") and not one.get("va_cols")]
    return MATCH if not named or len(named) < len(at.body["rels"]) else None


@matcher
def _copy_file(at: Candidate) -> Fields | None:
    return MATCH if at.body.get("filename") or at.body.get("is_program") else None


@matcher
def _function_language(at: Candidate) -> Fields | None:
    language = string(option(at.body.get("options"), "language"))
    return None if language is None or language == "sql" else {"language": language}


@matcher
def _function_result(at: Candidate) -> Fields | None:
    result = at.body.get("returnType", {})
    return {"type": type_name(result)} if system_name(result.get("names")) in at.options["types"] else None


@matcher
def _grant_on_system_schema(at: Candidate) -> Fields | None:
    named = at.body.get("targtype") == "ACL_TARGET_OBJECT" and at.body.get("objtype") == "OBJECT_SCHEMA"
    return MATCH if named and set(strings(at.body.get("objects"))) & set(at.options["schemas"]) else None


@matcher
def _system_schema(at: Candidate) -> Fields | None:
    body = at.body
    # DROP lists the schemas, RENAME and OWNER TO name one.
    named = strings(body.get("objects")) or [str(body.get("subname") or string(body.get("object")))]
    return MATCH if set(named) & set(at.options["schemas"]) else None


@matcher
def _role_attributes(at: Candidate) -> Fields | None:
    # ALTER GROUP ... ADD USER is a GRANT of the role by another name.
    own = [one for one in bodies(at.body.get("options"), "DefElem") if one["defname"] != "rolemembers"]
    return MATCH if own else None


@matcher
def _role_setting(at: Candidate) -> Fields | None:
    return None if at.body["setstmt"]["kind"] in ("VAR_RESET", "VAR_RESET_ALL") else MATCH


@matcher
def _role_named(at: Candidate) -> Fields | None:
    # CURRENT_USER and its like have no name, and may be anybody.
    named = {one.get("rolename") for one in bodies(at.body.get("roles"), "RoleSpec")}
    return MATCH if named & {None, *at.options["roles"]} else None


@matcher
def _statistics_target(at: Candidate) -> Fields | None:
    target = integer(at.body.get("stxstattarget"))
    # Without a number it is DEFAULT, a word of later PostgreSQLs: a syntax error.
    return None if target is None or -1 <= target <= at.options["most"] else {"target": target}


@matcher
def _function_body(at: Candidate) -> Fields | None:
    for inner in written_statements(at.body):
        if inner.name not in at.options["statements"]:
            return {"inner": inner.name.removesuffix("Stmt")}
    return None


@matcher
def _engine_schema(at: Candidate) -> Fields | None:
    name = str(at.body.get("schemaname") or at.body.get("newname") or "")
    return {"schema": name} if name.startswith(at.options["prefix"]) else None
