"""Each rule refuses what it is for, and not its neighbour."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from pytest_dsql.local.dialect.rulebook import Rule, rules
from tests.local.dialect.rule_cases import CASES, TODAY, refusal


def _day(rule: Rule) -> date:
    return rule.until - timedelta(days=1) if rule.until else TODAY


def test_every_rule_has_its_case() -> None:
    assert {rule.id for rule in rules()} == set(CASES)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_refused(rule: Rule) -> None:
    case = CASES[rule.id]
    found = refusal(case.refused, _day(rule))
    assert found is not None
    assert (found.sqlstate, found.message, found.detail) == (case.sqlstate, case.message, rule.detail)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_accepted(rule: Rule) -> None:
    assert refusal(CASES[rule.id].accepted, _day(rule)) is None


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.until], ids=lambda rule: rule.id)
def test_a_rule_ends(rule: Rule) -> None:
    assert rule.until is not None
    case = CASES[rule.id]
    found = refusal(case.refused, rule.until)
    successors = [other for other in rules() if other.id != rule.id and other.message == rule.message]
    assert found is None or any(other.since == rule.until for other in successors)
