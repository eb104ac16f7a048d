"""What a token and a connection cost the client: CPU of one thread, medians of interleaved runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import botocore
import botocore.session
import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource, sign_token
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation

AUTH = IamAuth(access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="secret/key")
CLUSTER = Endpoint("abcdefghijklmnopqrstuvwxyz.dsql.eu-central-1.on.aws", auth=AUTH)


def interleaved(runs: int, sides: dict[str, Callable[[], object]], repeats: dict[str, int]) -> dict[str, float]:
    """Milliseconds of this thread's CPU per call, the median of `runs` rounds over all sides."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs + 1):
        for name, call in sides.items():
            count = repeats.get(name, 1)
            started = time.thread_time_ns()
            for _ in range(count):
                call()
            spent[name].append((time.thread_time_ns() - started) / count / 1e6)
    return {name: statistics.median(times[1:]) for name, times in spent.items()}  # the first round warms up


def fresh_client() -> str:
    """Sign as a connector without a cache does: a new session and client for every connection."""
    client = botocore.session.Session().create_client(
        "dsql",
        region_name="eu-central-1",
        aws_access_key_id=AUTH.access_key_id,
        aws_secret_access_key=AUTH.secret_access_key,
    )
    return str(client.generate_db_connect_admin_auth_token(CLUSTER.host))


def test_a_token_from_the_source_costs_next_to_nothing() -> None:
    source = TokenSource(CLUSTER)
    cost = interleaved(
        9,
        {"source": source.token, "signature": lambda: sign_token(CLUSTER), "session and client": fresh_client},
        {"source": 10_000, "signature": 100},
    )
    print(
        f"\na token: {cost['source'] * 1e3:.2f} us from the source, {cost['signature']:.3f} ms signed anew, "
        f"{cost['session and client']:.1f} ms with a new session and client"
    )
    assert cost["session and client"] > 50 * cost["signature"]
    assert cost["signature"] > 20 * cost["source"]


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    if tls_installation() is None:
        pytest.skip("no PostgreSQL with TLS on this machine")
    with plain_postgres(tls=True) as running:
        yield running


def test_a_connection_costs_what_libpq_costs_and_one_root_keeps_that_low(server: PlainPostgres, tmp_path: Path) -> None:
    endpoint = Endpoint.from_dsn(server.dsn).resolved()
    assert endpoint.sslrootcert is not None
    # What `sslrootcert` costs when it names all authorities of a system rather than the one that is needed.
    bundle = tmp_path / "bundle.pem"
    authorities = Path(botocore.__file__).with_name("cacert.pem").read_text(encoding="utf-8")
    bundle.write_text(Path(endpoint.sslrootcert).read_text() + authorities, encoding="utf-8")
    bundled = replace(endpoint, sslrootcert=str(bundle))
    tokens = TokenSource(endpoint)
    conninfo = endpoint.conninfo()

    def plain() -> None:
        psycopg.connect(**conninfo, autocommit=True).close()  # type: ignore[arg-type]  # the values are strings

    def dialled() -> None:
        dial(endpoint, tokens)[0].close()

    def with_bundle() -> None:
        dial(bundled, tokens)[0].close()

    cost = interleaved(
        9,
        {"psycopg": plain, "dial": dialled, "bundle": with_bundle},
        {"psycopg": 10, "dial": 10, "bundle": 5},
    )
    phases = [dial(endpoint, tokens) for _ in range(20)]
    for connection, _ in phases:
        connection.close()
    wall = {
        name: statistics.median(getattr(one, f"{name}_ns") for _, one in phases) / 1e6
        for name in ("tcp", "tls", "authentication", "startup", "total")
    }
    print(
        f"\na TLS connection: {cost['dial']:.2f} ms of client CPU by the dialer, {cost['psycopg']:.2f} ms by "
        f"psycopg.connect, {cost['bundle']:.2f} ms with a bundle of {authorities.count('BEGIN CERTIFICATE')} roots\n"
        f"its phases: {', '.join(f'{name} {value:.2f} ms' for name, value in wall.items())}"
        " (wall, medians of 20; SCRAM, which DSQL does not ask for, is part of authentication)"
    )
    assert cost["dial"] < 1.25 * cost["psycopg"]
    assert cost["bundle"] > 1.3 * cost["dial"]
