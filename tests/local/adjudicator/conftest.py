"""An engine for interleavings and races."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_dsql.local.client import Engine
from tests.local.adjudicator.served import Served
from tests.local.engines import connect


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        yield engine


@pytest.fixture
def served(engine: Engine) -> Iterator[Served]:
    """A fresh cluster with the model's tables."""
    cluster = engine.new_cluster()
    target = Served(lambda: connect(engine, cluster))
    yield target
    target.close()
    engine.remove_cluster(cluster.id)
