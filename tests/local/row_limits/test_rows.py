"""3,000 modified rows in a transaction, counted exactly, whatever modifies them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pytest_dsql.local.controls import LocalControls

Connection = psycopg.Connection[Any]

TOO_MANY = "transaction row limit exceeded"


def crosses(connection: Connection, sql: str) -> None:
    """Assert that a statement fails with the limit's error, and that nothing of the engine shows in it."""
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"^{TOO_MANY}$") as caught:
        connection.execute(sql.encode())
    diag = caught.value.diag
    assert (diag.sqlstate, diag.context, diag.internal_query, diag.schema_name) == ("54000", None, None, None)


def count(connection: Connection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def numbers(connection: Connection) -> Connection:
    connection.execute("CREATE TABLE b (k int PRIMARY KEY, v int)")
    return connection


def test_3000_rows_pass_and_3001_fail(numbers: Connection) -> None:
    crosses(numbers, "INSERT INTO b SELECT g, g FROM generate_series(1, 3001) g")
    assert count(numbers, "b") == 0
    assert numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 3000) g").rowcount == 3000


def test_a_list_of_values_counts(numbers: Connection) -> None:
    values = ", ".join(f"({k}, 0)" for k in range(3001))
    crosses(numbers, f"INSERT INTO b VALUES {values}")
    numbers.execute(f"INSERT INTO b VALUES {values[: -len(', (3000, 0)')]}".encode())


def test_the_statements_of_a_transaction_add_up_and_the_crossing_one_fails(numbers: Connection) -> None:
    numbers.execute("BEGIN")
    numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 1000) g")
    numbers.execute("UPDATE b SET v = 0")
    numbers.execute("DELETE FROM b")
    crosses(numbers, "INSERT INTO b VALUES (1, 1)")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        numbers.execute("SELECT 1")
    assert numbers.execute("COMMIT").statusmessage == "ROLLBACK"


def test_each_transaction_counts_anew(numbers: Connection) -> None:
    for end in ("ROLLBACK", "COMMIT", "COMMIT"):
        numbers.execute("BEGIN")
        numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 3000) g ON CONFLICT (k) DO UPDATE SET v = 0")
        numbers.execute(end.encode())
    numbers.execute("UPDATE b SET v = 1")


@pytest.mark.parametrize("statement", ["UPDATE b SET v = v + 1", "DELETE FROM b"])
def test_updates_and_deletes_count(numbers: Connection, statement: str) -> None:
    for first, last in ((1, 3000), (3001, 3001)):
        numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(%s::int, %s::int) g", (first, last))
    crosses(numbers, statement)
    assert numbers.execute(f"{statement} WHERE k <> 7".encode()).rowcount == 3000


def test_both_arms_of_on_conflict_count(numbers: Connection) -> None:
    numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 2000) g")
    upsert = "INSERT INTO b SELECT g, 0 FROM generate_series(1, {}) g ON CONFLICT (k) DO UPDATE SET v = 0"
    crosses(numbers, upsert.format(3001))
    assert numbers.execute(upsert.format(3000).encode()).rowcount == 3000


def test_rows_that_do_nothing_on_conflict_do_not_count(numbers: Connection) -> None:
    numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 2000) g")
    numbers.execute("INSERT INTO b SELECT g, 0 FROM generate_series(1, 5000) g ON CONFLICT DO NOTHING")
    assert count(numbers, "b") == 5000


def test_every_write_of_a_with_query_counts(numbers: Connection) -> None:
    numbers.execute("CREATE TABLE w (k int)")
    two = (
        "WITH one AS (INSERT INTO w SELECT g FROM generate_series(1, {}) g RETURNING k)"
        " INSERT INTO b SELECT k, 0 FROM one"
    )
    crosses(numbers, two.format(1501))
    numbers.execute(two.format(1500).encode())


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_cascaded_rows_count(connection: Connection, action: str) -> None:
    connection.execute("CREATE TABLE p (k int PRIMARY KEY)")
    connection.execute(f"CREATE TABLE c (k int PRIMARY KEY, v int DEFAULT 9 REFERENCES p ON DELETE {action})".encode())
    connection.execute("INSERT INTO p VALUES (1), (2), (9)")
    connection.execute("INSERT INTO c SELECT g, 1 FROM generate_series(1, 3000) g")
    connection.execute("INSERT INTO c SELECT g, 2 FROM generate_series(3001, 5999) g")
    crosses(connection, "DELETE FROM p WHERE k = 1")
    assert connection.execute("DELETE FROM p WHERE k = 2").rowcount == 1


def test_cascaded_updates_count(connection: Connection) -> None:
    connection.execute("CREATE TABLE p (k int PRIMARY KEY)")
    connection.execute("CREATE TABLE c (k int PRIMARY KEY, v int REFERENCES p ON UPDATE CASCADE)")
    connection.execute("INSERT INTO p VALUES (1)")
    connection.execute("INSERT INTO c SELECT g, 1 FROM generate_series(1, 3000) g")
    crosses(connection, "UPDATE p SET k = 2")
    connection.execute("DELETE FROM c WHERE k = 1")
    connection.execute("UPDATE p SET k = 2")


def test_index_entries_do_not_count(connection: Connection) -> None:
    connection.execute("CREATE TABLE i (k int PRIMARY KEY, v int UNIQUE, w int UNIQUE)")
    connection.execute("INSERT INTO i SELECT g, g, g FROM generate_series(1, 3000) g")


def test_copy_counts(numbers: Connection) -> None:
    def copy(rows: int) -> None:
        with numbers.cursor().copy("COPY b FROM STDIN") as copying:
            for k in range(rows):
                copying.write_row((k, k))

    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"^{TOO_MANY}$"):
        copy(3001)
    copy(3000)
    assert count(numbers, "b") == 3000


def test_the_statements_of_a_query_string_add_up(numbers: Connection) -> None:
    crosses(
        numbers,
        "INSERT INTO b SELECT g, g FROM generate_series(1, 2000) g;"
        " INSERT INTO b SELECT g, g FROM generate_series(2001, 3001) g",
    )
    assert count(numbers, "b") == 0


def test_the_transactions_of_a_query_string_do_not_add_up(numbers: Connection) -> None:
    numbers.execute(
        "BEGIN; INSERT INTO b SELECT g, g FROM generate_series(1, 2000) g; COMMIT;"
        " BEGIN; INSERT INTO b SELECT g, g FROM generate_series(2001, 4000) g; COMMIT"
    )
    assert count(numbers, "b") == 4000


def test_prepared_and_pipelined_statements_count(numbers: Connection) -> None:
    def pipeline() -> None:
        with numbers.pipeline():
            numbers.execute("BEGIN")
            for k in range(3001):
                numbers.execute("INSERT INTO b VALUES (%s, %s)", (k, k), prepare=True)
            numbers.execute("COMMIT")

    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=TOO_MANY):
        pipeline()
    numbers.execute("ROLLBACK")
    assert count(numbers, "b") == 0


def test_a_table_of_many_kinds_of_columns_is_counted(connection: Connection) -> None:
    connection.execute(
        'CREATE TABLE "Many ""kinds" ("written" int, "select" text, j jsonb, b bytea, n numeric(10, 2), t timestamptz,'
        ' u uuid, i interval, f boolean, "Ünïcode" varchar(9), PRIMARY KEY ("select", u))'
    )
    insert = (
        "INSERT INTO \"Many \"\"kinds\" SELECT g, g::text, '{{}}', NULL, g, now(), gen_random_uuid(), NULL, true, 'x'"
        " FROM generate_series(1, {}) g"
    )
    crosses(connection, insert.format(3001))
    connection.execute(insert.format(3000).encode())


def test_a_changed_table_is_counted_on(numbers: Connection) -> None:
    numbers.execute("ALTER TABLE b ADD COLUMN w text")
    numbers.execute("ALTER TABLE b RENAME COLUMN v TO x")
    numbers.execute("ALTER TABLE b RENAME TO bb")
    numbers.execute("ALTER TABLE bb DROP COLUMN x")
    crosses(numbers, "INSERT INTO bb SELECT g, g::text FROM generate_series(1, 3001) g")
    numbers.execute("INSERT INTO bb SELECT g, g::text FROM generate_series(1, 3000) g")


def test_a_table_in_another_schema_is_counted(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA other")
    try:
        connection.execute("CREATE TABLE other.t (k int)")
        crosses(connection, "INSERT INTO other.t SELECT generate_series(1, 3001)")
    finally:
        connection.execute("DROP SCHEMA other CASCADE")


def test_what_is_counted_survives_a_reset_of_all_settings(numbers: Connection) -> None:
    numbers.execute("SET TimeZone = 'Asia/Seoul'")
    numbers.execute("BEGIN")
    numbers.execute("INSERT INTO b SELECT g, g FROM generate_series(1, 3000) g")
    assert numbers.execute("RESET ALL").statusmessage == "RESET"
    assert numbers.execute("SHOW TimeZone").fetchall() == [("UTC",)]
    crosses(numbers, "INSERT INTO b VALUES (0, 0)")


def test_whoever_writes_is_counted(numbers: Connection) -> None:
    """Nobody can become another role within a session, but a function can act as its owner."""
    fill = "INSERT INTO public.b SELECT g, g FROM generate_series(1, n) g; SELECT current_user"
    for sql in (
        "CREATE ROLE rows_writer",
        "GRANT SELECT, INSERT ON b TO rows_writer",
        "GRANT rows_writer TO admin",
        "CREATE SCHEMA theirs",
        "GRANT CREATE, USAGE ON SCHEMA theirs TO rows_writer",
        f"CREATE FUNCTION theirs.fill(n int) RETURNS name LANGUAGE sql SECURITY DEFINER AS '{fill}'",
        "ALTER FUNCTION theirs.fill OWNER TO rows_writer",
    ):
        numbers.execute(sql)
    try:
        crosses(numbers, "SELECT theirs.fill(3001)")
        assert numbers.execute("SELECT theirs.fill(3000)").fetchall() == [("rows_writer",)]
    finally:
        for sql in ("DROP TABLE b", "DROP SCHEMA theirs CASCADE", "DROP ROLE rows_writer"):
            numbers.execute(sql)


def test_a_clients_path_changes_nothing(numbers: Connection) -> None:
    numbers.execute("CREATE FUNCTION pg_column_size(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    try:
        numbers.execute("SET search_path = public, pg_catalog")
        crosses(numbers, "INSERT INTO b SELECT g, g FROM generate_series(1, 3001) g")
    finally:
        numbers.execute("DROP FUNCTION pg_column_size(text)")


def test_another_limit_holds_from_the_next_statement_on(numbers: Connection, controls: LocalControls) -> None:
    insert = "INSERT INTO b SELECT g, g FROM generate_series(1, %s::int) g ON CONFLICT (k) DO UPDATE SET v = 0"
    numbers.execute(insert, (5,), prepare=True)
    controls.limits.set(transaction_rows=4)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=TOO_MANY):
        numbers.execute(insert, (5,), prepare=True)
    numbers.execute(insert, (4,))
    controls.limits.set(transaction_rows=6000)
    numbers.execute(insert, (6000,))


def test_nothing_of_the_counting_shows(numbers: Connection) -> None:
    for catalog in (
        "pg_trigger",
        "information_schema.triggers",
        "pg_event_trigger",
        "(SELECT FROM pg_settings WHERE name LIKE 'pytest%') s",
    ):
        assert count(numbers, catalog) == 0, catalog


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("form", ["TEXT", "JSON", "YAML", "XML"])
def test_no_plan_shows_the_counting(connection: Connection, form: str, prepare: bool) -> None:
    connection.execute("CREATE TABLE p (k int PRIMARY KEY)")
    connection.execute("CREATE TABLE q (k int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE)")
    for statement in ("INSERT INTO p VALUES (1)", "INSERT INTO q VALUES (1, 1)", "DELETE FROM p"):
        explain = f"EXPLAIN (ANALYZE, FORMAT {form}) {statement}"
        shown = str(connection.execute(explain.encode(), (), prepare=prepare).fetchall())
        assert "limits" not in shown
        assert "pytest" not in shown
