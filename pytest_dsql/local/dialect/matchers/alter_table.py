"""Matchers of rules/tables.toml: the actions of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.matchers.sequences import bad_cache
from pytest_dsql.local.dialect.tree import Body, bodies, columns, option


def _commands(body: Body) -> Iterator[Body]:
    return bodies(body.get("cmds"), "AlterTableCmd")


def _added_constraints(body: Body) -> Iterator[Body]:
    for command in _commands(body):
        if command["subtype"] == "AT_AddConstraint":
            yield command["def"]["Constraint"]


@matcher
def _added_column_constraint(at: Candidate) -> Fields | None:
    for column in columns(at.body):
        if any(one["contype"] != "CONSTR_NULL" for one in bodies(column.get("constraints"), "Constraint")):
            return MATCH
    return None


@matcher
def _added_deferred_unique(at: Candidate) -> Fields | None:
    for one in _added_constraints(at.body):
        if one["contype"] == "CONSTR_UNIQUE" and one.get("indexname") and one.get("deferrable"):
            return MATCH
    return None


@matcher
def _added_constraint(at: Candidate) -> Fields | None:
    if at.body.get("objtype") != "OBJECT_TABLE":
        return None
    for one in _added_constraints(at.body):
        adopted = one["contype"] == "CONSTR_UNIQUE" and one.get("indexname")
        unchecked = one["contype"] in at.options["not_valid"] and one.get("skip_validation")
        if not adopted and not unchecked:
            return MATCH
    return None


@matcher
def _validate_constraint(at: Candidate) -> Fields | None:
    validations = [command["subtype"] == "AT_ValidateConstraint" for command in _commands(at.body)]
    return MATCH if any(validations) and not (at.statement.is_async and validations == [True]) else None


@matcher
def _alter_action(at: Candidate) -> Fields | None:
    if at.body.get("objtype") not in at.options["objects"]:
        return None
    for command in _commands(at.body):
        if command["subtype"] in at.options["actions"]:
            return {"action": at.options["actions"][command["subtype"]]}
    return None


@matcher
def _added_identity_cache(at: Candidate) -> Fields | None:
    for command in _commands(at.body):
        if command["subtype"] == "AT_AddIdentity" and bad_cache(command["def"]["Constraint"].get("options")):
            return MATCH
    return None


@matcher
def _changed_identity_cache(at: Candidate) -> Fields | None:
    for command in _commands(at.body):
        if command["subtype"] == "AT_SetIdentity":
            options = command["def"]["List"]["items"]
            if option(options, "cache") is not None and bad_cache(options):
                return MATCH
    return None
