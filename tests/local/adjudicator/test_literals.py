"""Statements with their values in the text: what stands for them, and which values stay where they are."""

from __future__ import annotations

import pytest

from pytest_dsql.local.adjudicator.batching import MANY, steps
from pytest_dsql.local.adjudicator.literals import with_parameters
from pytest_dsql.local.adjudicator.work import Entry
from pytest_dsql.local.gateway.run import NO_PARAMETERS, NOTHING_BOUND
from tests.local.adjudicator.test_batching import CATALOG, planned


def entry(sql: str) -> Entry:
    return Entry(sql.encode(), planned(sql), NO_PARAMETERS, NOTHING_BOUND, rows=1)


def parametrised(sql: str) -> tuple[str, list[int], list[str]]:
    """The text that stands for a statement, the types of its parameters, and their values."""
    (found,) = with_parameters([entry(sql)], CATALOG, ("public",))
    types, bound = found.types, found.bound
    count = int.from_bytes(types[:2], "big")
    values, place = [], 4
    for _ in range(count):
        behind = place + 4 + int.from_bytes(bound[place : place + 4], "big")
        values.append(bound[place + 4 : behind].decode())
        place = behind
    return found.sql.decode(), [int.from_bytes(types[2 + 4 * n : 6 + 4 * n], "big") for n in range(count)], values


@pytest.mark.parametrize(
    ("sql", "text", "types", "values"),
    [
        ("UPDATE item SET n = n - 1 WHERE k = 7", "UPDATE item SET n = n - $1 WHERE k = $2", [23, 23], ["1", "7"]),
        (
            "UPDATE item SET n=-n-1 WHERE k=7 AND n>-3;",
            "UPDATE item SET n=-n-$1 WHERE k=$2 AND n>-3;",
            [23] * 2,
            ["1", "7"],
        ),
        ('UPDATE item AS "i 5" SET n = 1e5 WHERE k = 7', 'UPDATE item AS "i 5" SET n = 1e5 WHERE k = $1', [23], ["7"]),
        (
            "UPDATE item SET note = 'é''s', n = 1.5 WHERE k = 3000000000",
            "UPDATE item SET note = $1, n = $2 WHERE k = $3",
            [0, 1700, 20],
            ["é's", "1.5", "3000000000"],
        ),
        (
            "INSERT INTO other VALUES (1, 99999999999999999999)",
            "INSERT INTO other VALUES ($1, $2)",
            [23, 1700],
            ["1", "99999999999999999999"],
        ),
        (
            "INSERT INTO item VALUES (1, NULL, '') ON CONFLICT (k) DO UPDATE SET n = item.n + 2",
            "INSERT INTO item VALUES ($1, NULL, $2) ON CONFLICT (k) DO UPDATE SET n = item.n + $3",
            [23, 0, 23],
            ["1", "", "2"],
        ),
        (  # behind its type no parameter may stand
            "UPDATE item SET note = date '2026-01-01' || float8 '1' WHERE k = '1'",
            "UPDATE item SET note = date '2026-01-01' || float8 '1' WHERE k = $1",
            [0],
            ["1"],
        ),
        (
            "UPDATE item SET note = 'abc'::varchar(2) WHERE k = '7'",
            "UPDATE item SET note = $1::varchar(2) WHERE k = $2",
            [0, 0],
            ["abc", "7"],
        ),
    ],
)
def test_values_become_parameters(sql: str, text: str, types: list[int], values: list[str]) -> None:
    assert parametrised(sql) == (text, types, values)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE item SET note = 'a'\n'b' WHERE k = 1",
        "UPDATE item SET note = concat('a', 1) WHERE k = 1",  # what a literal is, it knows
        "UPDATE item SET n = 1 WHERE n = 2",  # not by the key: nothing gained
        "UPDATE item SET n = 0x1F WHERE k = -2",
        "UPDATE item SET n = 1 -- it's\n WHERE k = 2",
        "UPDATE item SET n = 1 /* 2 */ WHERE k = 2",
        "UPDATE item SET note = E'\\'' WHERE k = 2",
        "UPDATE item SET note = $$a$$ WHERE k = 2",
        "DELETE FROM parent WHERE k = 1",
    ],
)
def test_what_gains_nothing_stays(sql: str) -> None:
    assert parametrised(sql) == (sql, [], [])


def test_what_differs_in_its_values_only_is_done_at_once() -> None:
    log = [entry(f"UPDATE item SET n = {7 * number} WHERE k = {number}") for number in range(MANY)]
    (step,) = steps(log, {}, with_parameters(log, CATALOG, ("public",)))
    assert step.at_once
    assert step.entries == log


def test_rows_are_told_apart_whatever_writes_them() -> None:
    log = [entry(f"UPDATE item SET n = 1 WHERE k = {key}") for key in (1, 2, 1)]
    made = steps(log, {}, with_parameters(log, CATALOG, ("public",)))
    assert [len(step.entries) for step in made] == [2, 1]


def test_a_number_that_python_cannot_read_is_no_known_row() -> None:
    log = [entry("UPDATE item SET n = 1 WHERE k = 1")] * 2
    stand_ins = with_parameters(log, CATALOG, ("public",))
    stand_ins[0].bound = stand_ins[0].bound[:-3] + b"x" + stand_ins[0].bound[-2:]
    assert len(steps(log, {}, stand_ins)) == 2
