"""The limits' values, as PostgreSQL is told of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.limits import DEFAULT, Limits
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.local.row_limits import are_made, limits_sql
from tests.local.engines import connect


def test_every_limit_has_its_statement() -> None:
    sql = limits_sql(Limits(transaction_rows=7), date(2026, 11, 1))
    assert "pytest_dsql_engine_limits.transaction_rows() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 7::big" in sql
    assert "compresses_texts() RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true::boolean'" in sql


def test_a_new_cluster_has_the_limits_of_today() -> None:
    assert are_made(DEFAULT, date(2026, 8, 26))
    assert not are_made(DEFAULT, date(2026, 8, 25))
    assert not are_made(Limits(tables=1), date(2026, 11, 1))


@pytest.fixture
def early() -> Any:
    options = EngineOptions(rules=date(2026, 8, 25), limits=Limits(transaction_rows=2))
    with Engine.start_or_attach(options=options) as engine, connect(engine) as connection:
        yield connection


def test_an_engine_of_an_earlier_day_with_other_limits_has_them_from_its_start(early: psycopg.Connection[Any]) -> None:
    early.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="datatype limit greater than 1048576 bytes"):
        early.execute("INSERT INTO t VALUES (1, repeat('x', 1048577))")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="row limit"):
        early.execute("INSERT INTO t VALUES (1, ''), (2, ''), (3, '')")
