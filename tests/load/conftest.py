"""Servers for the load generator's tests: a PostgreSQL, and a fake one that does as it is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.transaction import CellRun, Mix
from tests.plain_postgres import PlainPostgres, plain_postgres

#: Rows of the table `items`.
ITEMS = 100


@pytest.fixture(scope="session")
def postgres() -> Iterator[PlainPostgres]:
    with plain_postgres(settings={"max_connections": "40"}) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, quantity bigint NOT NULL)")
            connection.execute(f"INSERT INTO items SELECT g, 0 FROM generate_series(0, {ITEMS - 1}) g")
            connection.execute("CREATE TABLE receipts (operation_id text PRIMARY KEY)")
        yield server


def endpoint_of(server: PlainPostgres) -> Endpoint:
    return Endpoint(
        host=server.host,
        port=server.port,
        user=server.user,
        dbname=server.dbname,
        sslmode="disable",
        auth=PasswordAuth(server.password),
        dialect="postgresql",
    )


@pytest.fixture
def endpoint(postgres: PlainPostgres) -> Endpoint:
    return endpoint_of(postgres)


@pytest.fixture(scope="session")
def fake_port() -> Iterator[int]:
    script = Path(__file__).with_name("fake_server.py")
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def fake_endpoint(port: int, dbname: str = "fake") -> Endpoint:
    return Endpoint(
        host="127.0.0.1",
        port=port,
        user="tester",
        dbname=dbname,
        sslmode="disable",
        auth=PasswordAuth(None),
        dialect="postgresql",
    )


@pytest.fixture
def fake(fake_port: int) -> Endpoint:
    return fake_endpoint(fake_port)


def cell_plan(endpoint: Endpoint, mix: Mix, **changes: Any) -> CellPlan:
    """A short cell: 4 connections, one worker, no warm-up, a third of a second."""
    connections = changes.get("connections", 4)
    run = changes.pop("run", None) or CellRun(number=1, operation_prefix="t-", slots=connections)
    given: dict[str, Any] = {
        "id": "test",
        "scale": None,
        "arrival": Arrival("closed"),
        "connections": connections,
        "workers": 1,
        "warmup_s": 0.0,
        "window_s": 0.3,
        "seed": 1,
    }
    return CellPlan(endpoint=endpoint, mix=mix, run=run, **(given | changes))
