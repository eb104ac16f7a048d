"""What is sent for a text, and what is remembered of it."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_dsql.local.dialect import judge
from pytest_dsql.local.dialect.judgement import Judgement, Part
from pytest_dsql.local.gateway import statements
from pytest_dsql.local.gateway.statements import Statements
from tests.local.gateway.harness import few_rules

DAY = date(2026, 10, 1)


class CountingJudge:
    """Accepts everything and counts."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, date]] = []

    def __call__(self, sql: str, rules: date) -> Judgement:
        self.asked.append((sql, rules))
        return Judgement((Part(sql),), True)


def test_an_accepted_text_goes_on_as_it_came() -> None:
    (plan,) = Statements(few_rules).decide(b"SELECT 1 -- \xe9", DAY).plans
    assert (plan.sent, plan.changed, plan.tag) == (b"SELECT 1 -- \xe9", False, None)


def test_a_refused_statement_ends_a_query_string() -> None:
    first, refused = Statements(few_rules).decide(b"SELECT 1; LOCK t; SELECT 2", DAY).plans
    assert first.sent == b"SELECT 1;"
    assert refused.refused
    assert refused.sent.startswith(b"SELECT 'dsql-")


def test_tags_are_known_by_the_statements_place() -> None:
    decision = Statements(few_rules).decide(b"SELECT 1;INDEX ASYNC;SELECT 2;INDEX ASYNC", DAY)
    assert [plan.tag for plan in decision.plans] == [None, b"CREATE INDEX", None, b"CREATE INDEX"]
    assert not decision.single


@pytest.mark.parametrize(
    ("sql", "copies_in"),
    [
        ("COPY t FROM STDIN", True),
        ("/* ( */ copy -- (\n t (k) FROM STDIN", True),
        ("COPY (DELETE FROM t RETURNING k) TO STDOUT", False),
        ("COPY /* t */ (INSERT INTO t VALUES (1) RETURNING k) TO STDOUT", False),
        ("COPY t TO STDOUT", False),
    ],
)
def test_data_is_taken_for_what_is_copied_in(sql: str, copies_in: bool) -> None:
    (plan,) = Statements(judge).decide(sql.encode(), DAY).plans
    assert plan.copies_in == copies_in


def test_bytes_of_another_encoding_come_back_in_a_statement_of_several() -> None:
    plan, _ = Statements(few_rules).decide(b"SELECT '\xe9';INDEX ASYNC", DAY).plans
    assert plan.sent == b"SELECT '\xe9';"


def test_a_text_is_judged_once_for_each_day_of_the_rules() -> None:
    judge = CountingJudge()
    remembering = Statements(judge)
    for _ in range(3):
        remembering.decide(b"SELECT 1", DAY)
        remembering.decide(b"SELECT 1", date(2026, 7, 1))
    assert judge.asked == [("SELECT 1", DAY), ("SELECT 1", date(2026, 7, 1))]


def test_a_long_text_is_not_remembered() -> None:
    judge = CountingJudge()
    remembering = Statements(judge)
    for _ in range(2):
        remembering.decide(b"SELECT '" + b"x" * 20_000 + b"'", DAY)
    assert len(judge.asked) == 2


def test_the_memory_is_bounded_and_keeps_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_GENERATION", 10)
    judge = CountingJudge()
    remembering = Statements(judge)
    for number in range(100):
        remembering.decide(f"SELECT {number}".encode(), DAY)
        remembering.decide(b"SELECT 'often'", DAY)
    assert sum(sql == "SELECT 'often'" for sql, _ in judge.asked) == 1
    assert len(judge.asked) == 101
    remembering.decide(b"SELECT 0", DAY)
    assert len(judge.asked) == 102


def test_what_stands_before_a_statement_is_passed_over_in_no_time() -> None:
    def dml(sql: str, rules: date) -> Judgement:
        return Judgement((Part(sql, kind="dml"),), True)

    before = b" \n" * 200 + b"/**/" * 200 + b"-- COPY\n"
    for text, copies in ((b"INSERT INTO t VALUES (1)", False), (b"copy t FROM STDIN", True)):
        (plan,) = Statements(dml).decide(before + text, DAY).plans
        assert plan.copies_in is copies
