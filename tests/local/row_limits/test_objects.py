"""How many objects there may be, and what they may be like."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pytest_dsql.local.controls import LocalControls

Connection = psycopg.Connection[Any]


def refused(connection: Connection, sql: str, error: type[psycopg.Error] = psycopg.errors.ProgramLimitExceeded) -> str:
    with pytest.raises(error) as caught:
        connection.execute(sql.encode())
    diag = caught.value.diag
    assert (diag.context, diag.internal_query) == (None, None)
    return str(diag.message_primary)


def columns(count: int, first: int = 0) -> str:
    return ", ".join(f"c{n} int" for n in range(first, first + count))


@pytest.mark.parametrize(
    ("limit", "make", "message"),
    [
        ("tables", "CREATE TABLE o{} (k int)", "creating more than 2 tables not allowed"),
        ("views", "CREATE VIEW o{} AS SELECT 1 AS a", "creating more than 2 views not allowed"),
        ("sequences", "CREATE SEQUENCE o{} CACHE 1", "creating more than 2 sequences is not allowed"),
    ],
)
def test_a_database_has_so_many_objects_and_no_more(
    connection: Connection, controls: LocalControls, limit: str, make: str, message: str
) -> None:
    controls.limits.set(**{limit: 2})
    for number in (1, 2):
        connection.execute(make.format(number).encode())
    assert refused(connection, make.format(3)) == message
    controls.limits.set(**{limit: 3})
    connection.execute(make.format(3).encode())


def test_ten_schemas_beside_public(connection: Connection) -> None:
    try:
        for number in range(10):
            connection.execute(f"CREATE SCHEMA s{number}".encode())
        assert refused(connection, "CREATE SCHEMA s10") == "more than 10 schemas not allowed"
        connection.execute("CREATE SCHEMA IF NOT EXISTS s9")
    finally:
        for number in range(10):
            connection.execute(f"DROP SCHEMA IF EXISTS s{number}".encode())


def test_256_columns(connection: Connection) -> None:
    too_many = psycopg.errors.TooManyColumns
    assert refused(connection, f"CREATE TABLE a ({columns(257)})", too_many) == "tables can have at most 255 columns"
    connection.execute(f"CREATE TABLE a ({columns(256)})".encode())
    assert refused(connection, "ALTER TABLE a ADD COLUMN x int", too_many) == "tables can have at most 255 columns"
    assert refused(connection, f"CREATE TABLE b ({columns(256)}, k int PRIMARY KEY)", too_many) == (
        "cannot use more than 256 columns in an index"
    )


def test_24_indexes(connection: Connection) -> None:
    uniques = ", ".join(f"c{n} int UNIQUE" for n in range(24))
    assert refused(connection, f"CREATE TABLE a (k int PRIMARY KEY, {uniques})") == (
        "more than 24 indexes per table are not allowed"
    )
    connection.execute(f"CREATE TABLE a (k int, {uniques})".encode())
    assert refused(connection, "CREATE INDEX ASYNC ON a (k)") == "more than 24 indexes per table are not allowed"


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE a (k varchar(3000) PRIMARY KEY)",
        "CREATE TABLE a (k varchar(1990), n int, m bigint, UNIQUE (k, n, m))",
        "CREATE INDEX ASYNC ON declared (a, b)",
    ],
)
def test_a_declared_key_has_at_most_2000_bytes(connection: Connection, sql: str) -> None:
    connection.execute("CREATE TABLE declared (k varchar(2000) PRIMARY KEY, a varchar(1000), b varchar(1001))")
    connection.execute("CREATE INDEX ASYNC ON declared (a)")
    assert refused(connection, sql) == "key size greater than 2000 bytes not supported"


def test_five_extended_statistics(connection: Connection) -> None:
    connection.execute("CREATE TABLE a (a int, b int, c int, d int)")
    for number, pair in enumerate(("a, b", "a, c", "a, d", "b, c", "b, d")):
        connection.execute(f"CREATE STATISTICS s{number} ON {pair} FROM a".encode())
    assert refused(connection, "CREATE STATISTICS s5 ON c, d FROM a") == (
        "more than 5 extended statistics per table are not allowed"
    )
    connection.execute("ALTER STATISTICS s0 SET STATISTICS 100")
    wrong = psycopg.errors.InvalidParameterValue
    assert refused(connection, "ALTER STATISTICS s0 SET STATISTICS 101", wrong) == (
        "statistics target 101 exceeds maximum allowed value of 100"
    )


def test_a_view_has_at_most_512_kib_of_definition(connection: Connection) -> None:
    connection.execute(f"CREATE VIEW a AS SELECT '{'x' * 400_000}' AS t".encode())
    assert refused(connection, f"CREATE VIEW b AS SELECT '{'x' * 600_000}' AS t") == "view definition too large"


@pytest.mark.parametrize(
    ("limits", "sql", "message"),
    [
        ({"columns": 3}, "CREATE TABLE a (b int, c int, d int, e int)", "tables can have at most 3 columns"),
        ({"columns": 255}, f"CREATE TABLE a ({columns(256)})", "tables can have at most 255 columns"),
        (
            {"columns": 3},
            "CREATE TABLE a (b int PRIMARY KEY, c int, d int, e int)",
            "cannot use more than 3 columns in an index",
        ),
        ({"indexes": 1}, "CREATE INDEX ASYNC ON made (b)", "more than 1 indexes per table are not allowed"),
        ({"indexes": 0}, "CREATE TABLE a (b int UNIQUE)", "more than 0 indexes per table are not allowed"),
        (
            {"statistics": 0},
            "CREATE STATISTICS s ON a, b FROM made",
            "more than 0 extended statistics per table are not allowed",
        ),
        (
            {"declared_key_bytes": 1024},
            "CREATE TABLE a (b varchar(1025) PRIMARY KEY)",
            "key size greater than 1024 bytes not supported",
        ),
        ({"view_bytes": 20}, "CREATE VIEW v AS SELECT a, b FROM made", "view definition too large"),
    ],
)
def test_what_objects_may_be_like_can_be_set(
    connection: Connection, controls: LocalControls, limits: dict[str, int], sql: str, message: str
) -> None:
    connection.execute("CREATE TABLE made (a int PRIMARY KEY, b int)")
    controls.limits.set(**limits)
    assert refused(connection, sql, psycopg.OperationalError) == message
    controls.reset()
    connection.execute(sql.encode())


def test_what_is_refused_leaves_nothing_behind(connection: Connection, controls: LocalControls) -> None:
    controls.limits.set(tables=0)
    assert refused(connection, "CREATE TABLE a (k int)") == "creating more than 0 tables not allowed"
    assert connection.execute("SELECT to_regclass('a')").fetchall() == [(None,)]
