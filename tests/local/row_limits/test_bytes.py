"""10 MiB in a transaction, and the sizes of values, rows and keys."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.controls import LocalControls

Connection = psycopg.Connection[Any]

MIB = 1024 * 1024


@pytest.fixture
def blobs(connection: Connection) -> Connection:
    connection.execute("CREATE TABLE b (k int PRIMARY KEY, d bytea)")
    return connection


def refused(connection: Connection, sql: str, *parameters: object) -> str:
    """Run what a limit refuses; give the error's text."""
    with pytest.raises(psycopg.errors.ProgramLimitExceeded) as caught:
        connection.execute(sql.encode(), parameters or None)
    diag = caught.value.diag
    assert (diag.sqlstate, diag.context, diag.internal_query) == ("54000", None, None)
    return str(diag.message_primary)


def write(connection: Connection, sizes: list[int], end: str = "COMMIT") -> None:
    connection.execute("BEGIN")
    for k, size in enumerate(sizes):
        connection.execute("INSERT INTO b VALUES (%s, %s)", (k, os.urandom(size)))
    connection.execute(end.encode())


def test_a_large_transaction_fails_at_its_commit_and_the_session_goes_on(blobs: Connection) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size limit 10mb exceeded") as caught:
        write(blobs, [MIB // 4] * 64)
    assert caught.value.diag.message_detail == "Current transaction size 17mb > 10mb"
    assert blobs.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert blobs.execute("SELECT count(*) FROM b").fetchall() == [(0,)]


def test_up_to_9_9_mib_pass_and_10_do_not(blobs: Connection) -> None:
    write(blobs, [MIB] * 9 + [MIB * 9 // 10])
    blobs.execute("DELETE FROM b")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size"):
        write(blobs, [MIB] * 10)


def test_a_rollback_meets_no_limit(blobs: Connection) -> None:
    write(blobs, [MIB] * 12, "ROLLBACK")


def test_a_statement_of_its_own_fails_itself(blobs: Connection) -> None:
    many = "INSERT INTO b SELECT k, %s FROM generate_series(1, 12) k"
    assert refused(blobs, many, os.urandom(MIB)) == "transaction size limit 10mb exceeded"
    assert blobs.execute("SELECT count(*) FROM b").fetchall() == [(0,)]


def test_deleted_rows_count_no_bytes(blobs: Connection) -> None:
    for first in (0, 8):
        blobs.execute("INSERT INTO b SELECT k + %s, %s FROM generate_series(1, 8) k", (first, os.urandom(MIB)))
    blobs.execute("DELETE FROM b")


def test_updated_rows_count_whole(blobs: Connection) -> None:
    for first in (0, 8):
        blobs.execute("INSERT INTO b SELECT k + %s, %s FROM generate_series(1, 8) k", (first, os.urandom(MIB)))
    assert "transaction size" in refused(blobs, "UPDATE b SET k = -k")


def test_copied_rows_count(blobs: Connection) -> None:
    row = os.urandom(MIB)

    def copy(rows: int) -> None:
        with blobs.cursor().copy("COPY b FROM STDIN") as copying:
            for k in range(rows):
                copying.write_row((k, row))

    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size"):
        copy(11)
    copy(9)


def batch(connection: Connection, mib: float) -> None:
    """Write 500 rows with so many MiB of values, each row with four texts of 100 bytes."""
    texts = 4 * 100
    fill = os.urandom(int(mib * MIB / 500) - texts - 16)
    connection.execute(
        "INSERT INTO w SELECT gen_random_uuid(), md5(g || 'a') || repeat('a', 68), md5(g || 'b') || repeat('b', 68),"
        " md5(g || 'c') || repeat('c', 68), md5(g || 'd') || repeat('d', 68), %s FROM generate_series(1, 500) g",
        (fill,),
    )


@pytest.mark.parametrize(("indexes", "most"), [(0, 9.93), (4, 9.11)])
def test_index_entries_count_as_they_were_measured(connection: Connection, indexes: int, most: float) -> None:
    connection.execute("CREATE TABLE w (k uuid PRIMARY KEY, a text, b text, c text, d text, v bytea)")
    for column in "abcd"[:indexes]:
        connection.execute(f"CREATE INDEX ASYNC ON w ({column})".encode())
    batch(connection, most * 0.99)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size"):
        batch(connection, most * 1.01)


def test_an_index_that_was_dropped_counts_no_more(connection: Connection) -> None:
    connection.execute("CREATE TABLE w (k uuid PRIMARY KEY, a text, b text, c text, d text, v bytea)")
    for column in "abcd":
        connection.execute(f"CREATE INDEX ASYNC w_{column} ON w ({column})".encode())
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="transaction size"):
        batch(connection, 9.5)
    for column in "abcd":
        connection.execute(f"DROP INDEX w_{column}".encode())
    batch(connection, 9.5)


def test_an_update_beside_the_indexed_columns_writes_no_entries(connection: Connection) -> None:
    connection.execute("CREATE TABLE w (k int PRIMARY KEY, a text, n int)")
    connection.execute("CREATE INDEX ASYNC ON w (a)")
    # Each row is about 1,030 bytes, its index entry four times that.
    connection.execute("INSERT INTO w SELECT g, repeat(md5(g::text), 28), 0 FROM generate_series(1, 1500) g")
    connection.execute("INSERT INTO w SELECT g, repeat(md5(g::text), 28), 0 FROM generate_series(1501, 3000) g")
    connection.execute("UPDATE w SET n = 1")
    assert "transaction size" in refused(connection, "UPDATE w SET a = a || 'x'")


@pytest.mark.parametrize("type_", ["bytea", "text", "json", "jsonb"])
def test_a_value_has_at_most_1_mib_as_stored(connection: Connection, type_: str) -> None:
    connection.execute(f"CREATE TABLE v (k int PRIMARY KEY, d {type_})".encode())
    if type_ == "bytea":
        fits: object = os.urandom(MIB)
        longer: object = os.urandom(MIB + 1)
    else:
        quote = '"' if type_.startswith("json") else ""
        letters = os.urandom(MIB).hex()  # two of them hold a byte: nothing for a compressor to find
        letters = "".join(chr(0x21 + int(letters[n : n + 2], 16) % 94) for n in range(0, 2 * MIB, 2))
        letters = letters.replace('"', "#").replace("\\", "#")
        fits = quote + letters[: MIB - 2 * len(quote)] + quote
        longer = quote + letters[: MIB - 2 * len(quote)] + "x" + quote
    insert = f"INSERT INTO v VALUES (%s, %s::{type_})"
    connection.execute(insert.encode(), (1, fits))
    assert (
        refused(connection, insert, 2, longer) == f"datatype limit greater than 1048576 bytes not supported for {type_}"
    )


def test_values_that_compress_may_be_longer(connection: Connection) -> None:
    connection.execute("CREATE TABLE v (k int PRIMARY KEY, d text, j jsonb)")
    connection.execute(
        "INSERT INTO v VALUES (1, repeat('ab', 1500000), jsonb_build_object('a', repeat('x', 2 * 1024 * 1024)))"
    )
    assert connection.execute("SELECT length(d) FROM v").fetchall() == [(3_000_000,)]


def test_bytea_is_never_compressed(blobs: Connection) -> None:
    message = "datatype limit greater than 1048576 bytes not supported for bytea"
    assert refused(blobs, "INSERT INTO b VALUES (1, %s)", bytes(MIB + 1)) == message
    assert "transaction size" in refused(blobs, "INSERT INTO b SELECT k, %s FROM generate_series(1, 12) k", bytes(MIB))


@pytest.mark.parametrize(
    ("type_", "most", "name"),
    [
        ("varchar", 65_535, "varchar"),
        ("character varying(65535)", 65_535, "varchar"),
        ("bpchar", 4_096, "char"),
        ("d", 65_535, "varchar"),
    ],
)
def test_strings_have_limits_in_bytes(connection: Connection, type_: str, most: int, name: str) -> None:
    connection.execute("CREATE DOMAIN d AS varchar")
    try:
        connection.execute(f"CREATE TABLE v (k int PRIMARY KEY, d {type_})".encode())
        random = os.urandom(most).hex()
        connection.execute("INSERT INTO v VALUES (1, %s)", (random[:most],))
        connection.execute("INSERT INTO v VALUES (2, %s)", ("x" * (most - 1),))
        message = f"datatype limit greater than {most} bytes not supported for {name}"
        assert refused(connection, "INSERT INTO v VALUES (3, %s)", "é" + random[: most - 1]) == message
    finally:
        connection.execute("DROP TABLE IF EXISTS v")
        connection.execute("DROP DOMAIN d")


def test_a_row_has_at_most_2_mib(connection: Connection) -> None:
    connection.execute("CREATE TABLE r (k int PRIMARY KEY, a bytea, b bytea, c bytea)")
    value = os.urandom(700_000)
    assert (
        refused(connection, "INSERT INTO r VALUES (1, %s, %s, %s)", value, value, value) == "maximum row size exceeded"
    )
    connection.execute("INSERT INTO r VALUES (1, %s, %s, %s)", (value, value, value[:600_000]))
    assert refused(connection, "UPDATE r SET c = a") == "maximum row size exceeded"


def test_a_key_has_1981_bytes_and_7_less_with_each_further_column(connection: Connection) -> None:
    connection.execute("CREATE TABLE one (k text PRIMARY KEY)")
    connection.execute("INSERT INTO one VALUES (repeat('k', 1981))")
    assert refused(connection, "INSERT INTO one VALUES (repeat('k', 1982))") == "key size too large"
    connection.execute(
        "CREATE TABLE eight (a text, b text, c text, d text, e text, f text, g text, h text,"
        " PRIMARY KEY (a, b, c, d, e, f, g, h))"
    )
    eight = "INSERT INTO eight SELECT v, v, v, v, v, v, v, v FROM (SELECT repeat('é', 120) || repeat('x', {})) AS q(v)"
    connection.execute(eight.format(1).encode())
    assert refused(connection, eight.format(2)) == "key size too large"


def test_an_index_key_holds_the_primary_key_too(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (k text PRIMARY KEY, v text)")
    connection.execute("CREATE INDEX ASYNC ON t (v)")
    connection.execute("INSERT INTO t VALUES (repeat('k', 500), repeat('v', 1474))")
    assert refused(connection, "UPDATE t SET v = v || 'v'") == "key size too large"


def test_a_key_that_postgresql_cannot_hold_either_is_refused_alike(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (k text PRIMARY KEY)")
    long = "INSERT INTO t SELECT string_agg(md5(g::text), '') FROM generate_series(1, {}) g"
    for length in (70, 100, 400):
        assert refused(connection, long.format(length)) == "key size too large", length


def test_the_sizes_can_be_set(blobs: Connection, controls: LocalControls) -> None:
    controls.limits.set(value_bytes=100, row_bytes=150, transaction_bytes=MIB // 2)
    blobs.execute("INSERT INTO b VALUES (1, %s)", (os.urandom(100),))
    assert "greater than 100 bytes" in refused(blobs, "INSERT INTO b VALUES (2, %s)", os.urandom(101))
    assert refused(blobs, "INSERT INTO b SELECT k, %s FROM generate_series(2, 3000) k", os.urandom(100)) == (
        "transaction size limit 0.5mb exceeded"
    )
    blobs.execute("ALTER TABLE b ADD COLUMN e bytea")
    assert (
        refused(blobs, "INSERT INTO b VALUES (2, %s, %s)", os.urandom(80), os.urandom(80))
        == "maximum row size exceeded"
    )


def test_a_full_cluster_takes_no_more(blobs: Connection, controls: LocalControls) -> None:
    controls.limits.set(storage_bytes=1)
    with pytest.raises(psycopg.errors.DiskFull, match=r"^Current cluster size exceeds cluster size limit\.$"):
        blobs.execute("INSERT INTO b VALUES (1, '')")


def test_a_query_has_128_mib_of_temporary_space(connection: Connection) -> None:
    sort = (
        "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY w) FROM"
        " (SELECT repeat(md5(g::text), 40) FROM generate_series(1, {}) g) x(w)) y(n)"
    )
    connection.execute(sort.format(50_000).encode())
    assert refused(connection, sort.format(150_000)) == (
        "query requires more than allowed temp space of 131072 KB to execute"
    )
