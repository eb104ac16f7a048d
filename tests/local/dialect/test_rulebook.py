"""The rules as data: complete, dated, sourced, and known to the code."""

from __future__ import annotations

import re
from datetime import date

import pytest

from pytest_dsql.local.dialect.judge import QUERY_MARKS
from pytest_dsql.local.dialect.matchers import MATCHERS
from pytest_dsql.local.dialect.rulebook import Rule, in_force, rules, sources
from pytest_dsql.local.gateway.startup import SETTABLE

GENERAL_AVAILABILITY = date(2025, 5, 27)


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_rule_is_complete(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)
    assert re.fullmatch(r"[0-9A-Z]{5}", rule.sqlstate)
    assert rule.message
    assert rule.match in MATCHERS
    assert rule.evidence in ("observed", "documented", "inferred")
    assert rule.source in sources()
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", rule.seen)
    assert rule.since >= GENERAL_AVAILABILITY
    assert rule.until is None or rule.until > rule.since


def test_every_matcher_is_used() -> None:
    assert {rule.match for rule in rules()} == set(MATCHERS)


def test_the_shortcut_for_queries_knows_every_node_that_rules_look_at_in_them() -> None:
    # A statement's own node can't stand inside SELECT, INSERT, UPDATE or DELETE; MERGE can (in a later parser's WITH).
    inside = {node for rule in rules() for node in rule.on if not node.endswith("Stmt")} | {"SelectStmt", "MergeStmt"}
    assert inside == set(QUERY_MARKS)


def test_rules_of_a_day() -> None:
    before = in_force(date(2026, 9, 14))["IndexStmt"]
    after = in_force(date(2026, 9, 15))["IndexStmt"]
    assert {rule.id for rule in before} - {rule.id for rule in after} == {"partial-index-early"}


def test_a_connection_may_set_what_a_session_may() -> None:
    rule = next(rule for rule in rules() if rule.id == "parameter")
    assert set(rule.options["settable"]) == SETTABLE
