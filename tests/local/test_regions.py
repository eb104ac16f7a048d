"""A cluster with an endpoint in each of two Regions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.token import sign_token
from pytest_dsql.errors import UsageError
from pytest_dsql.local.client import Engine, LocalCluster
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.options import EngineOptions
from tests.local.engines import ask, connect, endpoint_of

REGIONS = ("ap-northeast-1", "ap-northeast-2")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach(options=EngineOptions().with_settings({"regions": "+".join(REGIONS)})) as engine:
        yield engine


@pytest.fixture(scope="module")
def places(engine: Engine) -> list[LocalCluster]:
    """The cluster as clients of each Region see it."""
    return [LocalCluster(one.id, one.region, one.host) for one in LocalControls(engine, engine.cluster).endpoints]


def test_each_region_has_an_id_and_a_host_name_of_its_own(engine: Engine) -> None:
    endpoints = engine.cluster.endpoints
    assert tuple(one.region for one in endpoints) == REGIONS
    assert len({one.id for one in endpoints}) == 2
    assert [one.host for one in endpoints] == [f"{one.id}.dsql.{one.region}.on.aws" for one in endpoints]
    assert engine.cluster.host == endpoints[0].host


def test_both_endpoints_reach_the_same_data(engine: Engine, places: list[LocalCluster]) -> None:
    with connect(engine, places[0]) as connection:
        connection.execute("CREATE TABLE shared (id int PRIMARY KEY)")
        connection.execute("INSERT INTO shared VALUES (7)")
    assert ask(engine, "SELECT id FROM shared", places[1]) == 7


@pytest.mark.parametrize("place", [0, 1])
def test_a_token_is_good_for_its_own_endpoint_only(engine: Engine, places: list[LocalCluster], place: int) -> None:
    here, there = places[place], places[1 - place]
    with pytest.raises(psycopg.OperationalError, match="access denied"):
        ask(engine, "SELECT 1", here, token=sign_token(endpoint_of(engine, there)))


@pytest.mark.parametrize("place", [0, 1])
def test_localhost_stands_for_the_region_that_the_token_is_for(
    engine: Engine, places: list[LocalCluster], place: int
) -> None:
    local = replace(endpoint_of(engine, places[place]), host="localhost", hostaddr=None)
    parameters = local.conninfo(sign_token(local))
    with psycopg.connect(**parameters, autocommit=True) as connection:  # type: ignore[arg-type]
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_further_cluster_has_the_same_regions(engine: Engine) -> None:
    cluster = engine.new_cluster()
    assert tuple(one.region for one in cluster.endpoints) == REGIONS
    assert ask(engine, "SELECT 1", LocalCluster(cluster.endpoints[1].id, REGIONS[1], cluster.endpoints[1].host)) == 1
    engine.remove_cluster(cluster.id)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("us-east-1", "name two at least"),
        ("us-east-1+mars", "'mars' is not the name of a region"),
        ("us-east-1+us-east-1", "must differ"),
    ],
)
def test_regions_that_cannot_be_meant_are_refused(value: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        EngineOptions().with_settings({"regions": value})


def test_conflicts_between_regions_are_decided_as_one(engine: Engine, places: list[LocalCluster]) -> None:
    def lose(connection: psycopg.Connection[Any]) -> None:
        connection.execute("UPDATE counted SET n = n + 1")
        connection.execute("COMMIT")

    with connect(engine, places[0]) as first:
        first.execute("CREATE TABLE counted (id int PRIMARY KEY, n int)")
        first.execute("INSERT INTO counted VALUES (1, 0)")
    with connect(engine, places[0]) as first, connect(engine, places[1]) as second:
        second.execute("BEGIN")
        second.execute("SELECT * FROM counted")
        first.execute("UPDATE counted SET n = n + 1")
        with pytest.raises(psycopg.errors.SerializationFailure):
            lose(second)
        assert first.execute("SELECT n FROM counted").fetchone() == (1,)


def test_each_region_has_a_latency_of_its_own(engine: Engine, places: list[LocalCluster], tmp_path: Path) -> None:
    file = tmp_path / "far.toml"
    file.write_text("[[region]]\n[[region]]\nrtt = 150\n[region.statement]\nother = 50\n")
    controls = LocalControls(engine, engine.cluster)
    controls.latency.use(str(file))
    try:
        with connect(engine, places[0]) as near, connect(engine, places[1]) as far:
            times = []
            for connection in (near, far):
                began = time.monotonic()
                connection.execute("SHOW timezone")
                times.append(time.monotonic() - began)
    finally:
        controls.reset()
    assert times[1] > 0.197
    assert times[0] < times[1]
