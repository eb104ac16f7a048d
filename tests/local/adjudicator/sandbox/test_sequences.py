"""Whole transactions, made at random: each statement gives in the sandbox what it gives on the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_dsql.local.cluster import Cluster
from tests.local.adjudicator.sandbox.harness import Outcome, Server

SCHEMA = """
CREATE TABLE a (id integer PRIMARY KEY, u integer UNIQUE, v integer DEFAULT 7 CHECK (v < 9));
CREATE TABLE b (
  id integer PRIMARY KEY, a integer DEFAULT 1 REFERENCES a ON DELETE {on_delete} ON UPDATE {on_update},
  self integer REFERENCES b ON DELETE CASCADE, v integer);
CREATE TABLE c (b integer REFERENCES b ON DELETE {on_delete} ON UPDATE CASCADE, v integer);
CREATE UNIQUE INDEX partial ON b (v) WHERE v > 3;
INSERT INTO a VALUES (1, 1, 1), (2, 2, 2), (3, NULL, 3);
INSERT INTO b VALUES (1, 1, NULL, 1), (2, 2, 1, 2), (3, 2, 2, 5);
INSERT INTO c VALUES (1, 1), (1, 1), (2, 2), (NULL, 3);
"""
LOOKS = ("SELECT * FROM a", "SELECT * FROM b", "SELECT * FROM c")
COLUMNS = {"a": ("id", "u", "v"), "b": ("id", "a", "self", "v"), "c": ("b", "v")}

numbers = st.sampled_from(["1", "2", "3", "4", "5", "NULL"])
tables = st.sampled_from(sorted(COLUMNS))


@st.composite
def conditions(draw: st.DrawFn, table: str) -> str:
    column = draw(st.sampled_from(COLUMNS[table]))
    return draw(
        st.sampled_from(
            ["true", f"{column} IS NULL", f"{column} > 2", *(f"{column} = {n}" for n in ("1", "2", "3", "4"))]
        )
    )


@st.composite
def inserts(draw: st.DrawFn) -> str:
    table = draw(tables)
    columns = draw(st.lists(st.sampled_from(COLUMNS[table]), min_size=1, unique=True))
    rows = draw(st.lists(st.tuples(*(numbers for _ in columns)), min_size=1, max_size=3))
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    conflict = draw(
        st.sampled_from(["", "", " ON CONFLICT DO NOTHING", " ON CONFLICT (id) DO UPDATE SET v = excluded.id"])
    )
    if table == "c" or (table == "b" and "NOTHING" in conflict):
        conflict = ""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}{conflict} RETURNING *"


@st.composite
def updates(draw: st.DrawFn) -> str:
    table = draw(tables)
    column = draw(st.sampled_from(COLUMNS[table]))
    value = draw(st.one_of(numbers, st.sampled_from([f"{column} + 10", "DEFAULT"])))
    # One row at a time where the order of rows would decide whether a key is met before it is given up.
    return f"UPDATE {table} SET {column} = {value} WHERE {draw(conditions(table))} RETURNING {column}"


@st.composite
def deletes(draw: st.DrawFn) -> str:
    table = draw(tables)
    return f"DELETE FROM {table} WHERE {draw(conditions(table))} RETURNING *"


statements = st.lists(st.one_of(inserts(), updates(), deletes()), min_size=1, max_size=6)


@pytest.fixture(scope="module", params=["CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT", "RESTRICT"])
def server(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(cluster) as server:
        server.make(SCHEMA.format(on_delete=request.param, on_update=request.param))
        server.cached = server.catalog()
        yield server


def comparable(outcomes: Sequence[Outcome]) -> list[object]:
    """The outcomes without the texts of errors: of which of several violations they tell is up to the order of rows."""
    # For the same reason a key that is proposed twice may be met before, or after, one that another row has.
    same = {"21000": "23505"}
    return [same.get(outcome.error["C"], outcome.error["C"]) if outcome.error else outcome for outcome in outcomes]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(statements)
def test_a_transaction_gives_in_the_sandbox_what_it_gives_on_the_tables(server: Server, texts: list[str]) -> None:
    on_tables = server.on_tables(texts[0], (), *texts[1:], *LOOKS)
    in_sandbox = server.in_sandbox(texts[0], (), *texts[1:], *LOOKS)
    assert comparable(in_sandbox) == comparable(on_tables)
