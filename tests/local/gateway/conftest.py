"""A gateway in this process, in front of a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.account import choose_account
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.clusters import Clusters
from pytest_dsql.local.directories import runtime_base
from pytest_dsql.local.installation import find_installation
from tests.local.gateway.fuzzing.clients import CLIENTS
from tests.local.gateway.harness import REGION, RunningGateway, direct, run_gateway


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with a PostgreSQL of its own, and a second role: `app`."""
    directory = Path(tempfile.mkdtemp(prefix="t-", dir=runtime_base()))
    clusters = Clusters(
        directory, find_installation(), choose_account(), region=REGION, rules=date(2026, 10, 1), ended=print
    )
    try:
        cluster = clusters.add_default(None)
        with direct(cluster) as connection:
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute("CALL pytest_dsql_engine.map_iam_role('app', %s)", [cluster.principals[0].arn])
            connection.execute("CREATE ROLE nologin_role")
        yield cluster
    finally:
        clusters.close()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for all tests that leave it as it was."""
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"))


@pytest.fixture
def connection(served: RunningGateway) -> Iterator[psycopg.Connection[Any]]:
    """An admin's connection through the gateway."""
    with served.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def tables(cluster: Cluster) -> Iterator[None]:
    """What fuzzed sessions write to, through the gateway and beside it; and no limit on how many connect."""
    limits = cluster.limits
    cluster.limits = replace(limits, connect_rate_per_s=1e9, connect_burst=1_000_000_000)
    names = [f"{kind}{number}" for kind in ("fuzz", "pure") for number in range(CLIENTS)]
    with direct(cluster, "admin") as connection:
        for name in names:
            connection.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text)")
            connection.execute(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two')")
    yield
    with direct(cluster, "admin") as connection:
        for name in names:
            connection.execute(f"DROP TABLE {name}")
    cluster.limits = limits
