"""The levers of an engine's cluster, over the control socket."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from pytest_dsql.errors import EngineError, UsageError
from pytest_dsql.local.client import Engine, LocalCluster
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.options import EngineOptions
from tests.local.conftest import Place
from tests.local.engines import ask, connect, token_for


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach(options=EngineOptions(limits=Limits(sequences=7))) as engine:
        yield engine


@pytest.fixture
def controls(engine: Engine) -> Iterator[LocalControls]:
    controls = LocalControls(engine, engine.cluster)
    yield controls
    controls.reset()


def test_limits_begin_as_the_options_said(controls: LocalControls) -> None:
    assert controls.limits.get() == Limits(sequences=7)


def test_limits_are_set_by_name_and_reset(controls: LocalControls) -> None:
    assert controls.limits.set(session_s=2) == Limits(sequences=7, session_s=2.0)
    assert controls.limits.get() == Limits(sequences=7, session_s=2.0)
    controls.reset()
    assert controls.limits.get() == Limits(sequences=7)


def test_a_wrong_limit_is_refused_where_it_is_said(controls: LocalControls) -> None:
    with pytest.raises(UsageError, match="'speed' is no limit; known: connections"):
        controls.limits.set(speed=3)


def test_the_clock_moves_forward_and_goes_back_with_a_reset(controls: LocalControls) -> None:
    assert controls.clock.move(3_600) > time.time() + 3_599
    assert controls.clock.now() > time.time() + 3_599
    with pytest.raises(EngineError, match="can't be moved by -1 s"):
        controls.clock.move(-1)
    controls.reset()
    assert abs(controls.clock.now() - time.time()) < 5


def test_a_token_signed_before_the_clock_moved_is_as_much_older(controls: LocalControls) -> None:
    engine = controls.engine
    before = token_for(engine)
    controls.clock.move(901)
    with pytest.raises(psycopg.OperationalError, match="access denied"):
        ask(engine, "SELECT 1", token=before)
    assert ask(engine, "SELECT 1") == 1, "a token signed after it is new"


def test_clusters_have_limits_and_clocks_of_their_own(controls: LocalControls) -> None:
    other = LocalControls(controls.engine, controls.engine.new_cluster())
    other.limits.set(connections=1)
    assert (controls.limits.get().connections, other.limits.get().connections) == (10_000, 1)


def test_a_cluster_that_is_not_there_is_named(engine: Engine) -> None:
    nowhere = LocalControls(engine, LocalCluster("a" * 26, "us-east-1", "nowhere"))
    with pytest.raises(EngineError, match=f"this engine has no cluster {'a' * 26}"):
        nowhere.reset()


def test_a_cluster_that_was_put_to_sleep_refuses_until_it_is_awake(controls: LocalControls) -> None:
    controls.limits.set(wake_s=1_000)
    controls.sleep()
    with pytest.raises(psycopg.OperationalError, match="waking up cluster, please retry later"):
        ask(controls.engine, "SELECT 1")
    controls.clock.move(1_000)
    assert ask(controls.engine, "SELECT 1") == 1


def test_an_engine_can_be_started_asleep(place: Place) -> None:
    options = EngineOptions().with_settings({"asleep": "on", "wake_s": "1000"})
    with Engine.start_or_attach(options=options) as asleep:
        with pytest.raises(psycopg.OperationalError, match="waking up cluster"):
            ask(asleep, "SELECT 1")
        LocalControls(asleep, asleep.cluster).limits.set(wake_s=0)
        LocalControls(asleep, asleep.cluster).clock.move(1_000)
        assert ask(asleep, "SELECT 1") == 1


def test_a_reset_fills_the_bucket_of_new_connections(controls: LocalControls) -> None:
    controls.limits.set(connect_burst=2, connect_rate_per_s=0)
    for _ in range(2):
        ask(controls.engine, "SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="rate exceeded"):
        ask(controls.engine, "SELECT 1")
    controls.limits.set(connect_burst=2)
    ask(controls.engine, "SELECT 1")


def test_an_hour_passes_in_a_second(controls: LocalControls) -> None:
    with connect(controls.engine) as connection:
        controls.clock.move(3_601)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert ask(controls.engine, "SELECT 1") == 1
