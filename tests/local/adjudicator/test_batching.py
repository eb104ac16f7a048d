"""The log of a transaction in fewer statements: which of them become one, and in which order."""

from __future__ import annotations

import pytest

from pytest_dsql.local.adjudicator.batching import Step, parts, steps, undescribed
from pytest_dsql.local.adjudicator.sandbox import Catalog, ForeignKey, Key, Plan, Table, form, plan
from pytest_dsql.local.adjudicator.work import Entry

MANY = 20
INTEGER = (23).to_bytes(4, "big")
NONE = frozenset[str]()


def table(oid: int, name: str, columns: tuple[str, ...], referenced: tuple[ForeignKey, ...] = ()) -> Table:
    key = Key(100 + oid, f"{name}_pkey", (columns[0],), True, True, "{row}." + columns[0])
    types = ("integer",) * len(columns)
    return Table(
        *(oid, "public", name, False, columns, NONE, NONE, NONE, NONE, NONE),
        *((key,), False, False, (), referenced, types, ()),
    )


CASCADE = ForeignKey(9, "fk", 4, ("p",), 3, ("k",), "c", "a")
CATALOG = Catalog(
    [table(1, "item", ("k", "n", "note")), table(2, "other", ("k", "v")), table(3, "parent", ("k", "v"), (CASCADE,))],
    frozenset({"random"}),
    NONE,
)


def planned(sql: str) -> Plan:
    return plan(form(sql), CATALOG, ("public",))


def entry(texts: Plan, *values: object, types: bytes | None = None) -> Entry:
    given = [None if value is None else str(value).encode() for value in values]
    bound = b"".join(b"\xff" * 4 if value is None else len(value).to_bytes(4, "big") + value for value in given)
    count = len(given).to_bytes(2, "big")
    types = count + INTEGER * len(given) if types is None else types
    return Entry(texts.form.sql.encode(), texts, types, b"\0\0" + count + bound + b"\0\0", rows=1)


UPDATE = planned("UPDATE item SET n = n + $2 WHERE k = $1")
INSERT = planned("INSERT INTO other VALUES ($1, $2)")


def shape(made: list[Step]) -> list[int]:
    return [len(step.entries) for step in made]


def test_what_differs_in_its_parameters_only_is_done_at_once() -> None:
    made = steps([entry(UPDATE, number, 1) for number in range(MANY)], {})
    assert shape(made) == [MANY]
    assert made[0].at_once
    assert made[0].rows == MANY
    sql, types, bound = made[0].execution()
    assert b"unnest($1), pg_catalog.unnest($2)" in sql
    assert types == b"\0\2" + (1007).to_bytes(4, "big") * 2
    assert b"{" + b",".join(b'"%d"' % number for number in range(MANY)) + b"}" in bound
    assert list(parts(made)) == made


def test_few_are_done_one_by_one() -> None:
    made = steps([entry(UPDATE, number, 1) for number in range(3)], {})
    assert not made[0].at_once
    assert list(parts(made)) == made[0].entries


def test_a_row_is_written_once_by_a_statement() -> None:
    made = steps([entry(UPDATE, key, 1) for key in (1, 2, 1, 3, 1)], {})
    assert [[step.values[n][0] for n in range(len(step.values))] for step in made] == [
        [b"1", b"2"],
        [b"1", b"3"],
        [b"1"],
    ]


def test_statements_on_other_rows_and_tables_change_places() -> None:
    log = [one for number in range(MANY) for one in (entry(UPDATE, number, 1), entry(INSERT, number, 1))]
    assert shape(steps(log, {})) == [MANY, MANY]


def test_two_texts_keep_their_order_on_a_row() -> None:
    double = planned("UPDATE item SET n = n * $2 WHERE k = $1")
    made = steps([entry(UPDATE, 1, 1), entry(double, 1, 2), entry(UPDATE, 1, 3), entry(double, 2, 2)], {})
    assert shape(made) == [1, 2, 1]
    assert made[1].values == [[b"1", b"2"], [b"2", b"2"]]


def test_nothing_changes_places_with_what_may_be_anything() -> None:
    all_rows = planned("UPDATE item SET n = 0")
    log = [entry(UPDATE, 1, 1), entry(all_rows), entry(UPDATE, 2, 1)]
    assert shape(steps(log, {})) == [1, 1, 1]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE item SET n = (SELECT max(v) FROM other) + $2 WHERE k = $1",
        "UPDATE item SET k = $2 WHERE k = $1",
        "UPDATE item SET n = $2 WHERE n = $1",
        "UPDATE item SET n = $2 WHERE k = $1 OR n = 3",
        "UPDATE item SET n = $2 WHERE k = $1 AND random() > 0.5",
        "UPDATE item SET n = $2 FROM other WHERE item.k = $1",
        "UPDATE item SET n = DEFAULT WHERE k = $1",
        "UPDATE item SET n = $2 WHERE k = $1 AND item IS NOT NULL",
        "DELETE FROM item WHERE k = $1 AND ctid IS NOT NULL",
        "UPDATE item SET (n, note) = ($2, 'x') WHERE k = $1",
        "DELETE FROM parent WHERE k = $1",
        "DELETE FROM item WHERE n = $1",
        "INSERT INTO item SELECT $1, v FROM other",
        "INSERT INTO item VALUES ($1, $2), (7, 7)",
        "INSERT INTO item VALUES ($1, $2) ON CONFLICT DO NOTHING",
        "INSERT INTO item VALUES ($1 + 1, $2) ON CONFLICT (k) DO NOTHING",
        "INSERT INTO item VALUES ($1, 1) ON CONFLICT (k) DO UPDATE SET k = 5",
        "INSERT INTO item (k, n) VALUES ($1, (SELECT max(v) FROM other))",
        "WITH x AS (DELETE FROM other) UPDATE item SET n = $2 WHERE k = $1",
    ],
)
def test_what_may_be_more_than_its_row_is_no_batch(sql: str) -> None:
    assert planned(sql).batch is None


def test_an_insert_of_an_unknown_row_keeps_its_place_among_upserts() -> None:
    upsert = planned("INSERT INTO item VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET n = $2")
    unknown = planned("INSERT INTO item VALUES (7 + $1, $2)")
    assert shape(steps([entry(unknown, number, 1) for number in range(3)], {})) == [3]
    log = [entry(upsert, 1, 1), entry(unknown, 2, 1), entry(upsert, 3, 1), entry(upsert, 1, 2)]
    assert shape(steps(log, {})) == [1, 1, 2]


def test_rows_that_are_not_told_apart_are_no_batch() -> None:
    numeric = b"\0\2" + (1700).to_bytes(4, "big") + INTEGER  # 1 and 1.0 are the same row
    made = steps([entry(UPDATE, number, 1, types=numeric) for number in range(MANY)], {})
    assert shape(made) == [1] * MANY


def test_types_are_asked_for_where_the_client_gives_none() -> None:
    log = [entry(UPDATE, number, None, types=b"\0\0") for number in range(MANY)]
    parsed = (UPDATE.form.sql.encode(), b"\0\0")
    assert undescribed(log) == {parsed: UPDATE.form.sql.encode()}
    assert undescribed(log[:3]) == {}
    assert shape(steps(log, {})) == [1] * MANY
    made = steps(log, {parsed: (20, 23)})
    assert shape(made) == [MANY]
    assert b"{" + b",".join([b"NULL"] * MANY) + b"}" in made[0].execution()[2]


def test_values_in_their_binary_form_stay_so() -> None:
    log = [entry(UPDATE, "abcd", "efgh") for _ in range(2)]
    for number, one in enumerate(log):
        one.bound = b"\0\1\0\1\0\2" + b"\0\0\0\4" + number.to_bytes(4, "big") + b"\xff" * 4 + b"\0\0"
    (step,) = steps(log, {})
    first = b"".join(number.to_bytes(4, "big") for number in (1, 0, 23, 2, 1, 4, 0, 4, 1))
    second = b"".join(number.to_bytes(4, "big") for number in (1, 1, 23, 2, 1)) + b"\xff" * 8
    bound = b"\0\2\0\1\0\1\0\2" + b"".join(len(a).to_bytes(4, "big") + a for a in (first, second)) + b"\0\0"
    assert step.execution()[2] == bound
