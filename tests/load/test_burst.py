from __future__ import annotations

from dataclasses import replace
from time import perf_counter_ns

import pytest

from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, UsageError
from pytest_dsql.load import holding
from pytest_dsql.load.burst import connect_burst, sequential_connects
from pytest_dsql.load.connecting import Connecting, ConnectLog
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.holding import HeldConnections
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.memory import resident_bytes
from pytest_dsql.load.plan import BurstShare
from pytest_dsql.load.worker import allow_descriptors
from tests.load.conftest import fake_endpoint

PHASES = {"resolve", "tcp", "tls", "authentication", "startup", "total"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_burst_makes_its_connections(endpoint: Endpoint, workers: int) -> None:
    stats = connect_burst(endpoint, 11, workers=workers)
    assert (stats.attempted, stats.succeeded, stats.refused) == (11, 11, {})
    assert {name: len(values) for name, values in stats.phases_ns.items()} == dict.fromkeys(PHASES, 11)
    assert stats.client_cpu_ns > 0
    assert stats.elapsed_ns >= max(stats.phases_ns["total"])


def test_connections_are_held_so_the_servers_limit_shows(endpoint: Endpoint) -> None:
    stats = connect_burst(endpoint, 60)  # the server allows 40
    assert stats.attempted == 60
    assert 0 < stats.succeeded <= 40
    assert stats.refused == {"53300": 60 - stats.succeeded}
    assert "too many clients" in stats.messages["53300"]


def test_a_burst_on_a_closed_port_is_counted_as_refused(endpoint: Endpoint) -> None:
    stats = connect_burst(replace(endpoint, port=1), 3)
    assert (stats.attempted, stats.succeeded, stats.refused) == (3, 0, {"connection": 3})


def test_sequential_connections_hold_one_at_a_time(endpoint: Endpoint) -> None:
    stats = sequential_connects(endpoint, 3)
    assert (stats.attempted, stats.succeeded, stats.refused) == (3, 3, {})
    assert set(stats.phases_ns) == PHASES
    assert stats.elapsed_ns >= sum(stats.phases_ns["total"])


@pytest.mark.parametrize(("n", "workers"), [(0, 1), (1, 0)])
def test_a_burst_of_nothing_is_refused(endpoint: Endpoint, n: int, workers: int) -> None:
    with pytest.raises(ValueError, match="at least one connection and one worker"):
        connect_burst(endpoint, n, workers=workers)


def test_more_connections_than_open_files_allow_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match=r"ulimit -n \d+") as caught:
        allow_descriptors(1 << 40)
    assert "\n" not in str(caught.value)


def test_a_burst_counts_a_connection_that_breaks_at_its_query_as_none(fake_port: int) -> None:
    stats = connect_burst(fake_endpoint(fake_port, "hangup"), 3)
    assert (stats.attempted, stats.succeeded, stats.refused) == (3, 0, {"connection": 3})
    assert not any(stats.phases_ns.values())
    assert "connected, but SELECT 1 failed" in stats.messages["connection"]


def test_sequential_connections_that_break_at_their_query_are_counted(fake_port: int) -> None:
    stats = sequential_connects(fake_endpoint(fake_port, "hangup"), 2)
    assert (stats.attempted, stats.succeeded, stats.refused) == (2, 0, {"connection": 2})
    assert not stats.phases_ns


def test_sequential_connections_count_a_refusal_by_a_limit_and_go_on(fake_port: int) -> None:
    stats = sequential_connects(fake_endpoint(fake_port, "refuse53400"), 6)
    assert (stats.attempted, stats.succeeded, stats.refused) == (6, 3, {"53400": 3})


@pytest.mark.parametrize("workers", [1, 2])
def test_connections_at_a_rate_come_one_after_the_other_and_are_closed(endpoint: Endpoint, workers: int) -> None:
    stats = connect_burst(endpoint, 60, workers=workers, rate=50.0)  # more than the server's 40 at once
    assert (stats.attempted, stats.succeeded, stats.refused) == (60, 60, {})
    assert stats.elapsed_ns >= 1.17e9
    assert stats.memory_bytes is None
    made = Connections(
        stats, id="one", test="one", target="here", kind="sustained", requested=60, workers=workers, asked_per_s=50.0
    )
    assert made.limit.limited_by in ("none", "client", "server")  # this machine may be busy
    assert "sustained of 60 at 50.0/s" in made.table()
    made.assert_connected()


def test_a_worker_leaves_out_what_would_be_too_many_at_once(fake_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "MOST_UNDER_WAY", 5)
    loop = Loop()
    endpoint = fake_endpoint(fake_port, "mute").resolved()
    share = BurstShare(endpoint, 40, timeout_s=0.3, every_ns=1_000_000)
    held = HeldConnections(loop, share, TokenSource(endpoint))
    stats = held.make(perf_counter_ns())
    held.close()
    loop.close()
    assert 5 <= stats.attempted < 40
    assert stats.refused == {"connection": stats.attempted}


@pytest.mark.skipif(resident_bytes() is None, reason="the kernel does not tell")
def test_the_memory_of_held_connections_is_told(endpoint: Endpoint) -> None:
    stats = connect_burst(endpoint, 30)
    made = Connections(stats, id="one", test="one", target="here", kind="burst", requested=30)
    assert made.memory_bytes_per_connection is not None
    assert 0 < made.memory_bytes_per_connection < 1 << 20
    assert "KiB of memory per connection" in " ".join(made.table().split())


def test_a_token_that_cant_be_signed_is_one_more_failed_connection(fake_port: int) -> None:
    # As when credentials run out while a cell goes on; before it, the driver asks for a token and raises.
    endpoint = replace(
        fake_endpoint(fake_port),
        auth=IamAuth(profile="there-is-no-such-profile"),
        region="eu-central-1",
        sslmode="require",
    ).resolved()
    loop, log = Loop(), ConnectLog()
    decided: list[object] = []

    def note(made: object) -> None:
        decided.append(made)
        loop.stop()

    Connecting(loop, endpoint, TokenSource(endpoint), log, timeout_s=5.0, decided=note)
    loop.run()
    loop.close()
    [failure] = decided
    assert isinstance(failure, ConnectionFailed)
    assert "there is no token" in str(failure)
    assert log.stats.refused == {"connection": 1}
