"""Connections as Aurora DSQL wants them, verified TLS and an IAM token, against the engine's gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import psycopg
import pytest

from pytest_dsql.connect import token as token_module
from pytest_dsql.connect.credentials import SigningKeys
from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.pool import open_async_pool, open_pool
from pytest_dsql.connect.token import TokenSource, sign_token
from pytest_dsql.errors import ConnectionFailed, ErrorClass
from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.limits import Limits
from tests.local.gateway.conftest import cluster
from tests.local.gateway.harness import REGION, RunningGateway, run_gateway

__all__ = ["cluster"]


@pytest.fixture
def clock(gateway: RunningGateway) -> Iterator[EngineClock]:
    """The cluster's clock, for a test to move."""
    clock = gateway.cluster.clock
    yield clock
    gateway.call(clock.reset)


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["its own name", "localhost"])
def endpoint(request: pytest.FixtureRequest, gateway: RunningGateway) -> Endpoint:
    keys = gateway.principal
    own = request.param == "its own name"
    return Endpoint(
        gateway.cluster.host if own else "localhost",
        port=gateway.port,
        hostaddr="127.0.0.1" if own else None,
        region=REGION,
        sslrootcert=str(gateway.root_file),
        auth=IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key),
    )


def refused(endpoint: Endpoint, tokens: TokenSource | None = None) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as caught:
        dial(endpoint, tokens or TokenSource(endpoint))
    return caught.value


def test_a_connection_is_made_with_one_signature(endpoint: Endpoint) -> None:
    tokens = TokenSource(endpoint)
    for _ in range(3):
        connection, phases = dial(endpoint, tokens)
        with connection:
            assert connection.execute("SELECT current_user").fetchone() == ("admin",)
        assert phases.tls_ns > 0
    assert tokens.signed == 1


@pytest.mark.parametrize("negotiation", ["direct", "postgres"])
def test_both_ways_into_tls_work(endpoint: Endpoint, negotiation: Literal["direct", "postgres"]) -> None:
    if negotiation == "direct" and psycopg.pq.version() < 170000:
        pytest.skip("this libpq knows no direct TLS")
    other = replace(endpoint, sslnegotiation=negotiation)
    dial(other, TokenSource(other))[0].close()


def test_another_role_signs_for_its_own_action(endpoint: Endpoint) -> None:
    other = replace(endpoint, user="app")
    with dial(other, TokenSource(other))[0] as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)


def test_strangers_keys_are_refused(endpoint: Endpoint) -> None:
    other = replace(endpoint, auth=IamAuth(access_key_id="AKIAX", secret_access_key="s"))
    assert refused(other).error_class is ErrorClass.AUTH


def test_a_startup_parameter_that_dsql_refuses_is_told(endpoint: Endpoint) -> None:
    error = refused(replace(endpoint, parameters={"options": "-c statement_timeout=1"}))
    assert (error.sqlstate, error.error_class) == ("0A000", ErrorClass.OTHER)


def test_amazons_root_does_not_vouch_for_a_stranger(endpoint: Endpoint) -> None:
    assert refused(replace(endpoint, sslrootcert=None)).phase == "tls"


def test_the_environments_options_and_address_do_not_get_in_the_way(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=1")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGSSLNEGOTIATION", "postgres")
    dial(endpoint, TokenSource(endpoint))[0].close()
    psycopg.connect(**endpoint.conninfo(sign_token(endpoint))).close()  # type: ignore[arg-type]  # strings all


def test_an_expired_token_is_replaced_by_a_fresh_one(
    endpoint: Endpoint, gateway: RunningGateway, clock: EngineClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(endpoint: Endpoint, keys: SigningKeys) -> str:
        return sign_token(endpoint, keys, expires_s=1)

    tokens = TokenSource(endpoint)
    with monkeypatch.context() as patch:
        patch.setattr(token_module, "sign_token", short)
        tokens.token()
    gateway.call(lambda: clock.move(30.0))
    dial(endpoint, tokens)[0].close()
    assert tokens.signed == 2


def test_a_machine_whose_clock_is_wrong_is_told_so(
    endpoint: Endpoint, gateway: RunningGateway, clock: EngineClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineClock, "at", lambda _clock, signed_at: signed_at)  # nobody moved it: ours is behind
    gateway.call(lambda: clock.move(7_200.0))
    tokens = TokenSource(endpoint)
    error = refused(endpoint, tokens)
    assert error.error_class is ErrorClass.AUTH
    assert "expired" in str(error)
    assert tokens.signed == 1


def test_a_pool_fills_although_the_rate_of_new_connections_is_exceeded(
    endpoint: Endpoint, gateway: RunningGateway
) -> None:
    cluster = gateway.cluster
    limits = cluster.limits
    gateway.call(lambda: change(cluster, limits.changed({"connect_burst": 3, "connect_rate_per_s": 20})))
    try:
        with open_pool(endpoint, TokenSource(endpoint), min_size=15, max_size=15) as pool:
            assert pool.get_stats()["pool_size"] == 15
    finally:
        gateway.call(lambda: change(cluster, limits))


def change(cluster: Cluster, limits: Limits) -> None:
    cluster.limits = limits
    cluster.quotas.fill(limits)


def test_pools_of_both_kinds_serve(endpoint: Endpoint) -> None:
    tokens = TokenSource(endpoint)
    with open_pool(endpoint, tokens, min_size=2) as pool, pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

    async def serve() -> object:
        async with await open_async_pool(endpoint, tokens, min_size=2) as pool, pool.connection() as connection:
            return await (await connection.execute("SELECT 2")).fetchone()

    assert asyncio.run(serve()) == (2,)
    assert tokens.signed == 1
