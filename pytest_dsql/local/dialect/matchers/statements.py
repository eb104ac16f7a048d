"""Matchers of rules/statements.toml: whole statements."""

from __future__ import annotations

from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import option, string, strings


@matcher
def _isolation_level(at: Candidate) -> Fields | None:
    level = string(option(at.body.get("options", at.body.get("args")), "transaction_isolation"))
    return None if level is None or level == "repeatable read" else {"level": level.upper()}


@matcher
def _copy_file(at: Candidate) -> Fields | None:
    return MATCH if at.body.get("filename") or at.body.get("is_program") else None


@matcher
def _function_language(at: Candidate) -> Fields | None:
    language = string(option(at.body.get("options"), "language"))
    return None if language is None or language == "sql" else {"language": language}


@matcher
def _grant_on_system_schema(at: Candidate) -> Fields | None:
    named = at.body.get("targtype") == "ACL_TARGET_OBJECT" and at.body.get("objtype") == "OBJECT_SCHEMA"
    return MATCH if named and set(strings(at.body.get("objects"))) & set(at.options["schemas"]) else None
