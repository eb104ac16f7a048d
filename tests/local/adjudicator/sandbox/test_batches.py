"""Executions of a text that are done again at once write what they write one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pytest_dsql.local.adjudicator.sandbox import ENTER
from pytest_dsql.local.cluster import Cluster
from tests.local.adjudicator.sandbox.harness import Server

SCHEMA = """
CREATE TABLE item (k integer PRIMARY KEY, n numeric(8,2) DEFAULT 1, note varchar(20), CHECK (n > -100));
CREATE TABLE part (a integer, b text, item integer REFERENCES item, twice integer GENERATED ALWAYS AS (a * 2) STORED,
  PRIMARY KEY (a, b));
CREATE SCHEMA "S x";
CREATE TABLE "S x"."T y" ("K z" uuid PRIMARY KEY, v jsonb);
INSERT INTO item SELECT g, g, 'old' FROM generate_series(1, 9) AS g;
INSERT INTO part SELECT g, 'b', 1 FROM generate_series(1, 9) AS g;
INSERT INTO "S x"."T y" SELECT ('00000000-0000-0000-0000-00000000000' || g)::uuid, '1' FROM generate_series(1, 9) AS g;
"""
LOOKS = ("SELECT * FROM item", "SELECT * FROM part", 'SELECT * FROM "S x"."T y"')
UUID = "00000000-0000-0000-0000-00000000000"

Executions = Sequence[Sequence[str | None]]
CASES: dict[str, tuple[str, Executions]] = {
    "INSERT INTO item VALUES ($1, $2, $3)": ("int4[] int8[] text[]", [["11", "7", 'a, "b\\ {}'], ["12", None, None]]),
    "INSERT INTO item (note, k) VALUES ('x', 10 + $1) RETURNING n": ("int4[]", [["1"], ["2"]]),
    "INSERT INTO public.item AS i (k, n) VALUES ($1::int, 1.005 * $2)": (
        "int4[] numeric[]",
        [["11", "1"], ["12", "2"]],
    ),
    "UPDATE item SET n = n + $2, note = upper(note) || 'x' WHERE k = $1": (
        "int4[] numeric[]",
        [["1", "1"], ["2", "-9"]],
    ),
    "UPDATE public.item AS i SET note = $2 WHERE $1 = i.k AND n > $3 RETURNING *": (
        "int4[] text[] int4[]",
        [["1", "one", "0"], ["3", None, "2"]],
    ),
    "UPDATE part SET item = item WHERE b = $2 AND a = $1": ("int4[] text[]", []),
    "DELETE FROM part WHERE a = $1 AND b = $2": ("int4[] text[]", [["1", "b"], ["2", "b"]]),
    "DELETE FROM item AS i WHERE i.k = $1 -- all of it": ("int4[]", [["2"], ["3"]]),
    'UPDATE "S x"."T y" SET v = $2 WHERE "K z" = $1': (
        "uuid[] jsonb[]",
        [[f"{UUID}1", '{"a": "b"}'], [f"{UUID}2", "2"]],
    ),
    "INSERT INTO item AS i (k, note) VALUES ($1, 'x') ON CONFLICT (k) DO UPDATE SET n = i.n + excluded.n": (
        "int4[]",
        [["1"], ["11"], ["2"], ["12"]],
    ),
    "INSERT INTO item VALUES ($1, $2, $3) ON CONFLICT (k) DO UPDATE SET n = $2, note = excluded.note RETURNING n": (
        "int4[] numeric[] text[]",
        [["1", "5", "a"], ["11", None, "b"], ["2", "7", None]],
    ),
    "INSERT INTO public.item (k) VALUES ($1) ON CONFLICT (k) DO NOTHING": ("int4[]", [["11"], ["12"]]),
    'DELETE FROM "S x"."T y" WHERE "K z" = $1;': ("uuid[]", [[f"{UUID}1"], [f"{UUID}3"]]),
}


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    with Server(cluster) as server:
        server.make(SCHEMA)
        server.cached = server.catalog()
        yield server


def run(server: Server, texts: Sequence[tuple[str, Sequence[str | None]]]) -> tuple[list[int], list[list[object]]]:
    """The counts of the statements' tags, and what is in the tables afterwards."""
    connection = server.admin.pgconn
    counts = []
    for sql in ("BEGIN", ENTER):
        connection.exec_(sql.encode())
    try:
        for sql, values in texts:
            bound = [None if value is None else value.encode() for value in values]
            result = connection.exec_params(sql.encode(), bound)
            assert not result.error_message, (sql, result.error_message)
            counts.append(int((result.command_status or b"").split()[-1]))
        seen: list[list[object]] = []
        for look in LOOKS:
            result = connection.exec_((server.plan(look).sandbox.sql or look).encode())
            columns = range(result.nfields)
            cells = [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]
            seen.append(sorted(cells, key=str))
        return counts, seen
    finally:
        connection.exec_(b"ROLLBACK")


@pytest.mark.parametrize("sql", CASES)
def test_at_once_is_what_it_is_one_by_one(server: Server, sql: str) -> None:
    types, executions = CASES[sql]
    plan = server.plan(sql)
    if not executions:
        assert plan.batch is None  # its columns decide on a foreign key
        return
    assert plan.batch is not None
    one_by_one = run(server, [(plan.sandbox.sql or sql, values) for values in executions])
    arrays = [array([values[number - 1] for values in executions]) for number in plan.batch.numbers]
    text = plan.batch.text()
    for number, type_ in enumerate(types.split(), 1):
        text = text.replace(f"${number}", f"${number}::{type_}", 1)
    (count,), seen = run(server, [(text, arrays)])
    assert (count, seen) == (sum(one_by_one[0]), one_by_one[1])


def array(values: Sequence[str | None]) -> str:
    escaped = ("NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + ",".join(escaped) + "}"
