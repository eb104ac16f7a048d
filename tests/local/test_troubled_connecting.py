"""New connections under latency and faults, on a real engine. Times are only ever asked to be at least so long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, EngineError, UsageError
from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.faults.fault import Fault
from tests.local.engines import ask, endpoint_of


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        yield engine


@pytest.fixture
def controls(engine: Engine) -> Iterator[LocalControls]:
    controls = LocalControls(engine, engine.cluster)
    yield controls
    controls.reset()


@pytest.fixture
def slow(tmp_path: Path) -> str:
    file = tmp_path / "slow.toml"
    file.write_text("[connect]\ntcp = 20\ntls = 40\nauthentication = 80\nstartup = 50\n")
    return str(file)


def test_each_phase_of_a_connection_takes_its_time(controls: LocalControls, slow: str) -> None:
    controls.latency.use(slow)
    endpoint = endpoint_of(controls.engine)
    connection, phases = dial(endpoint, TokenSource(endpoint))
    connection.close()
    assert controls.latency.profile == "slow"
    # From the start on: a client that is late to learn of a phase's end has so much less of the next one left. The
    # timer's grain is a millisecond; TCP's part comes before the handshake.
    tls_ns = phases.resolve_ns + phases.tcp_ns + phases.tls_ns
    assert tls_ns > 58e6
    assert tls_ns + phases.authentication_ns > 137e6
    assert phases.total_ns > 186e6
    assert phases.authentication_ns > 0
    assert phases.startup_ns > 0


def test_a_reset_ends_the_latency(controls: LocalControls, slow: str) -> None:
    controls.latency.use(slow)
    before = controls.injections()
    assert ask(controls.engine, "SELECT 1") == 1
    held_back = controls.injections()
    controls.reset()
    assert ask(controls.engine, "SELECT 1") == 1
    assert (held_back > before, controls.injections(), controls.latency.profile) == (True, held_back, "none")


def test_a_profile_that_is_not_known_is_refused_where_it_is_named(controls: LocalControls) -> None:
    with pytest.raises(UsageError, match="no latency profile 'mars'"):
        controls.latency.use("mars")


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (Fault.refuse("53300"), "Unable to accept connection, too many open connections."),
        (Fault.refuse("53400"), "Unable to accept connection, rate exceeded."),
        (Fault.refuse("08006"), "unable to accept connection, access denied"),
        (Fault.disconnect(on="connect"), "eof|closed|reset"),
    ],
)
def test_a_connection_is_refused(controls: LocalControls, fault: Fault, answer: str) -> None:
    with controls.faults(fault) as injected:
        with pytest.raises(psycopg.OperationalError, match=answer):
            ask(controls.engine, "SELECT 1")
        assert injected.count == 1
    assert ask(controls.engine, "SELECT 1") == 1


def test_a_slow_connection_takes_so_much_longer(controls: LocalControls) -> None:
    with controls.faults(Fault.slow_connect(ms=150)):
        began = time.monotonic()
        assert ask(controls.engine, "SELECT 1") == 1
        assert time.monotonic() - began > 0.148


def test_a_silent_server_leaves_the_client_waiting(controls: LocalControls) -> None:
    endpoint = endpoint_of(controls.engine)
    with controls.faults(Fault.silence(on="connect")), pytest.raises(ConnectionFailed, match="no answer within"):
        dial(endpoint, TokenSource(endpoint), timeout_s=0.5)


def test_others_connect_while_one_waits(controls: LocalControls) -> None:
    with controls.faults(Fault.slow_connect(ms=3_600_000, first=1)):
        endpoint = endpoint_of(controls.engine)
        with pytest.raises(ConnectionFailed, match="no answer within"):
            dial(endpoint, TokenSource(endpoint), timeout_s=0.3)
        assert ask(controls.engine, "SELECT 1") == 1


def test_faults_come_from_a_file_too(controls: LocalControls, tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text('[[fault]]\nwhat = "refuse"\nsqlstate = "53300"\nname = "full"\n')
    assert controls.faults.load(file) == ["full"]
    with pytest.raises(psycopg.OperationalError, match="too many open connections"):
        ask(controls.engine, "SELECT 1")
    assert controls.faults.counts() == {"full": 1}
    controls.faults.clear()
    assert ask(controls.engine, "SELECT 1") == 1


def test_a_fault_that_is_not_in_force_cannot_be_taken_back(controls: LocalControls) -> None:
    with pytest.raises(EngineError, match="no fault 'mine' is in force"):
        controls.faults.remove("mine")


def test_a_reset_takes_faults_back(controls: LocalControls) -> None:
    controls.faults.add(Fault.refuse())
    controls.reset()
    assert controls.faults.counts() == {}
    assert ask(controls.engine, "SELECT 1") == 1
