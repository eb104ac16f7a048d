"""An engine, and clients of it, for tests of what a transaction may write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.options import EngineOptions
from tests.local.engines import connect


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    # No index build ends while a test runs, which would be a change of the catalog.
    with Engine.start_or_attach(options=EngineOptions().with_settings({"job_build_s": "600"})) as engine:
        yield engine


@pytest.fixture
def controls(engine: Engine) -> Iterator[LocalControls]:
    controls = LocalControls(engine, engine.cluster)
    yield controls
    controls.reset()


@pytest.fixture
def connection(engine: Engine) -> Iterator[psycopg.Connection[Any]]:
    """An admin's connection to an empty schema `public`."""
    with connect(engine) as connection:
        yield connection
        connection.rollback()
        kinds = {"r": "TABLE", "v": "VIEW", "S": "SEQUENCE"}
        for name, kind in connection.execute(
            "SELECT oid::regclass::text, relkind FROM pg_class WHERE relkind IN ('r', 'v', 'S')"
            " AND relnamespace = 'public'::regnamespace"
        ).fetchall():
            connection.execute(f"DROP {kinds[kind]} IF EXISTS {name} CASCADE".encode())
