"""A cluster's PostgreSQL, and two ways to run a statement in it: on the tables, and in the sandbox."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from pytest_dsql.local.account import choose_account
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.clusters import Clusters
from pytest_dsql.local.directories import runtime_base
from pytest_dsql.local.installation import find_installation
from tests.local.adjudicator.sandbox.harness import Server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="t-", dir=runtime_base()))
    clusters = Clusters(
        directory, find_installation(), choose_account(), region="eu-central-1", rules=date(2026, 11, 1), ended=print
    )
    try:
        yield clusters.add_default(None)
    finally:
        clusters.close()
        shutil.rmtree(directory)


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    """The server without any table of a client's."""
    with Server(cluster) as server:
        yield server
