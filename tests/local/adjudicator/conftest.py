"""An engine for interleavings and races."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from tests.local.adjudicator.racing import Connect, Make
from tests.local.adjudicator.served import Served
from tests.local.engines import connect as connect_to


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        yield engine


@pytest.fixture
def served(engine: Engine) -> Iterator[Served]:
    """A fresh cluster with the model's tables."""
    cluster = engine.new_cluster()
    target = Served(lambda: connect_to(engine, cluster))
    yield target
    target.close()
    engine.remove_cluster(cluster.id)


@pytest.fixture(scope="module")
def connect(engine: Engine) -> Iterator[Connect]:
    """Opens connections to a cluster for the races of a module."""
    cluster = engine.new_cluster()
    yield lambda: connect_to(engine, cluster)
    engine.remove_cluster(cluster.id)


@pytest.fixture
def make(connect: Connect) -> Iterator[Make]:
    """Makes tables, and drops them at the end."""
    made: list[str] = []

    def run(statements: str) -> None:
        with connect() as connection:
            for statement in filter(str.strip, statements.split(";")):
                try:
                    connection.execute(statement)
                except psycopg.errors.SerializationFailure:
                    connection.execute(statement)  # told once of somebody else's change of the catalog
                words = statement.split()
                if words[:2] == ["CREATE", "TABLE"]:
                    made.append(words[2])

    yield run
    run("; ".join(f"DROP TABLE {name}" for name in reversed(made)))
