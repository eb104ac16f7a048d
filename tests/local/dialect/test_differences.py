"""What the dialect does otherwise than DSQL, as docs/engine.md says: each difference shown."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.controls import LocalControls


@pytest.fixture
def connection(dsql_connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    dsql_connection.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    return dsql_connection


@pytest.mark.parametrize(
    "function",
    ["decode_job_status", "decode_job_ext_status", "decode_job_statement", "fetch_seq_data_tuple", "get_key_desc"],
)
def test_functions_whose_arguments_are_not_on_record_are_missing(
    connection: psycopg.Connection[Any], function: str
) -> None:
    sql = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'sys'::regnamespace AND proname = %s"
    assert connection.execute(sql, (function,)).fetchone() == (0,)


def test_a_role_may_have_a_password(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE USER somebody PASSWORD 'x'")
    assert connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'somebody'").fetchone() == (True,)


def test_functions_hold_queries_only(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="in CREATE FUNCTION: Vacuum"):
        connection.execute("CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'ANALYZE t'")


def test_left_join_lateral_works(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO t VALUES (1, 5)")
    query = "SELECT k, w FROM t LEFT JOIN LATERAL (SELECT v + 1 AS w WHERE v > 1) x ON true"
    assert connection.execute(query).fetchall() == [(1, 6)]


def test_no_job_analyses_tables(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 3000) g")
    connection.execute("ANALYZE t")
    assert connection.execute("SELECT reltuples FROM pg_class WHERE relname = 't'").fetchone() == (3000,)
    assert connection.execute("SELECT count(*) FROM sys.jobs WHERE job_type = 'ANALYZE'").fetchone() == (0,)


def test_a_copy_of_its_own_may_take_longer_than_a_transaction(
    connection: psycopg.Connection[Any], dsql_local: LocalControls
) -> None:
    dsql_local.limits.set(transaction_age_s=0.05)
    with connection.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write("1\t1\n")
        time.sleep(0.2)
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
