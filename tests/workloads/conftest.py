"""A PostgreSQL for the workloads' tests: an empty database, and one with the tiny order data loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.workload import Orders
from tests.plain_postgres import PlainPostgres, plain_postgres


@pytest.fixture(scope="session")
def server() -> Iterator[PlainPostgres]:
    with plain_postgres() as running:
        yield running


@pytest.fixture
def connect(server: PlainPostgres) -> Iterator[Connect]:
    """Open connections to an empty database."""
    yield lambda: psycopg.connect(server.dsn, autocommit=True)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pytest_dsql_%' OR nspname = 'public'"
        for (schema,) in connection.execute(schemas).fetchall():
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.fixture(scope="session")
def loaded(server: PlainPostgres) -> Connect:
    """Open connections to a database with the tiny order data, which all tests share: they only add to it."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE loaded")

    def connect_loaded() -> psycopg.Connection[Any]:
        return psycopg.connect(f"{server.dsn} dbname=loaded", autocommit=True)

    Orders("tiny").load(connect_loaded, dialect="postgresql")
    return connect_loaded
