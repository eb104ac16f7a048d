"""Types that no parse tree shows: DSQL looks at what a table or an index comes to be."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

REFUSED = {
    "CREATE TABLE x (LIKE shown)": "datatype integer[] not supported",
    "CREATE TABLE x (k int, v plain)": "datatype plain not supported",
    "ALTER TABLE plain ADD COLUMN x other": "datatype other not supported",
    "CREATE TABLE x (k int, v plain[])": "datatype plain[] not supported",
    "CREATE TABLE x (k int, v letter[])": "datatype letter[] not supported",
    "CREATE DOMAIN x AS plain": "datatype plain not supported",
    "CREATE DOMAIN x AS letter[]": "datatype letter[] not supported",
    "CREATE TABLE x (k document PRIMARY KEY)": "datatype jsonb is not supported in a key",
    "CREATE TABLE x (k int, v document, UNIQUE (k, v))": "datatype jsonb is not supported in a key",
    "CREATE INDEX ASYNC ON plain ((j -> 'a'))": "datatype jsonb is not supported in a key",
    "CREATE INDEX ASYNC ON plain (to_tsvector('simple', v))": "datatype tsvector is not supported in a key",
    "CREATE INDEX ASYNC ON plain (string_to_array(v, ','))": "datatype text[] is not supported in a key",
    "CREATE INDEX ASYNC ON plain (j)": "datatype jsonb is not supported in a key",
    "ALTER TABLE plain ALTER COLUMN k ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)": (
        "datatype integer not supported, identity column type must be bigint"
    ),
    "CREATE SCHEMA y CREATE TABLE x (LIKE public.shown)": "datatype integer[] not supported",
}


@pytest.fixture
def connection(dsql_connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    for statement in (
        "CREATE DOMAIN document AS jsonb",
        "CREATE DOMAIN letter AS document",
        "CREATE TABLE plain (k int NOT NULL, v text, j jsonb, big bigint NOT NULL)",
        "CREATE TABLE other (k int)",
        "CREATE VIEW shown AS SELECT ARRAY[k] AS a FROM plain",
    ):
        dsql_connection.execute(statement.encode())
    return dsql_connection


def test_types_are_refused_wherever_they_come_from(connection: psycopg.Connection[Any]) -> None:
    said = {}
    for statement in REFUSED:
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            connection.execute(statement.encode())
        assert caught.value.diag.context is None
        said[statement] = caught.value.diag.message_primary
    assert said == REFUSED


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE x (k int PRIMARY KEY, v letter, LIKE plain_)",
        "CREATE INDEX ASYNC ON plain (lower(v), (j ->> 'a'))",
        "CREATE INDEX ASYNC ON plain (k) INCLUDE (j)",
        "ALTER TABLE plain ALTER COLUMN big ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)",
    ],
)
def test_others_are_accepted(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute("CREATE TABLE plain_ (w numeric, z timestamptz)")
    connection.execute(statement.encode())


def test_numeric_has_its_scale_also_in_a_schemas_definition(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "CREATE SCHEMA y CREATE TABLE x (k numeric PRIMARY KEY) CREATE TABLE z (v numeric, w numeric(5))"
    )
    query = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = ANY (%s::regclass[]) AND attnum > 0"
    )
    rows = connection.execute(query, [["y.x", "y.z"]]).fetchall()
    assert sorted(row[0] for row in rows) == ["numeric(18,6)", "numeric(18,6)", "numeric(5,0)"]


def test_parameters_are_shown_as_dsql_has_them(connection: psycopg.Connection[Any]) -> None:
    shown = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in ("max_connections", "work_mem")]
    assert shown == [("20",), ("128MB",)]
