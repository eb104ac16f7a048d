"""How connections begin: TLS, host names, tokens, startup parameters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.gateway import frames, startup
from tests.local.gateway.harness import RawClient, RunningGateway, next_result

Connection = psycopg.Connection[Any]


def refused(served: RunningGateway, **changes: Any) -> str:
    """What libpq reports about a refused connection."""
    with pytest.raises(psycopg.OperationalError) as error:
        served.connect(**changes)
    return str(error.value)


def raw_refusal(client: RawClient, password: str | None = None, **settings: str) -> dict[str, str]:
    """The error that ends a login."""
    with client:
        client.startup(**{"user": "admin", "database": "postgres"} | settings)
        if password is not None:
            assert client.frame()[0] == "R"
            client.password(password)
        error = client.error()
        assert client.expect_end() == b""
    return error


@pytest.mark.parametrize("negotiation", ["postgres", "direct"])
@pytest.mark.parametrize("host", ["cluster", "localhost"])
def test_both_handshakes_and_both_names_work(served: RunningGateway, negotiation: str, host: str) -> None:
    name = served.cluster.host if host == "cluster" else "localhost"
    with served.connect(sslnegotiation=negotiation, host=name) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("admin",)


def test_another_role_logs_in_with_its_action(served: RunningGateway) -> None:
    with served.connect(user="app") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)


@pytest.mark.parametrize("user", ["nobody_knows", "nologin_role", "pytest_dsql_engine"])
def test_roles_that_cannot_log_in_are_denied(served: RunningGateway, user: str) -> None:
    error = raw_refusal(RawClient(served), served.token("DbConnect"), user=user)
    assert (error["S"], error["C"], error["M"]) == ("FATAL", "08006", "unable to accept connection, access denied")
    assert error["H"] == f"User: {served.principal.arn} is not authorized to access this resource"


def test_a_token_for_localhost_opens_the_cluster(served: RunningGateway) -> None:
    with served.connect(host="localhost", password=served.token(host="localhost")):
        pass


def test_an_expired_token_is_denied_with_a_hint(served: RunningGateway) -> None:
    error = raw_refusal(RawClient(served), served.token(expires=0))
    assert (error["C"], error["M"]) == ("08006", "unable to accept connection, access denied")
    assert error["H"].startswith("Signature expired: ")


def test_the_wrong_action_is_denied_with_a_hint(served: RunningGateway) -> None:
    error = raw_refusal(RawClient(served), served.token("DbConnect"))
    assert error["H"] == "Wrong user to action mapping. user: admin, action: DbConnect"


def test_a_plain_password_is_denied(served: RunningGateway) -> None:
    assert "access denied" in refused(served, password="hunter2")


def test_a_connection_without_sni_is_refused(served: RunningGateway) -> None:
    error = raw_refusal(RawClient(served, sni=None))
    assert (error["S"], error["M"]) == ("FATAL", "unable to accept connection, sni was not received")


def test_an_unknown_host_is_refused(served: RunningGateway) -> None:
    assert raw_refusal(RawClient(served, sni="unknown.example"))["S"] == "FATAL"


def test_an_unknown_database_is_refused(served: RunningGateway) -> None:
    error = raw_refusal(RawClient(served), served.token(), database="other")
    assert (error["C"], error["M"]) == ("3D000", 'database "other" does not exist')


def test_a_setting_that_dsql_refuses_is_refused(served: RunningGateway) -> None:
    said = refused(served, options="-c statement_timeout=5")
    assert 'setting configuration parameter "statement_timeout" not supported' in said


def test_allowed_settings_hold(served: RunningGateway) -> None:
    with served.connect(options="-c search_path=one,two", application_name="me") as connection:
        assert connection.execute("SHOW search_path").fetchone() == ("one,two",)
        assert connection.execute("SHOW application_name").fetchone() == ("me",)


def test_the_server_version_is_dsqls(connection: Connection) -> None:
    assert connection.info.parameter_status("server_version") == "16.15"


def test_clear_text_is_refused(served: RunningGateway) -> None:
    assert "tls is required" in refused(served, sslmode="disable")


def test_gssapi_is_declined(served: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
        raw.sendall(startup.PREFIX.pack(8, startup.GSSENC_REQUEST))
        assert raw.recv(1) == b"N"
        raw.sendall(startup.PREFIX.pack(8, startup.SSL_REQUEST))
        assert raw.recv(1) == b"S"


@pytest.mark.parametrize("alpn", [None, "http/1.1"])
def test_direct_tls_without_the_protocols_name_is_refused(served: RunningGateway, alpn: str | None) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        raw_refusal(RawClient(served, direct=True, alpn=alpn))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 no ClientHello",
        startup.PREFIX.pack(9, startup.SSL_REQUEST) + b"x",
        startup.PREFIX.pack(8, startup.SSL_REQUEST) * 2,
        startup.PREFIX.pack(8, startup.GSSENC_REQUEST) * 3,
        startup.PREFIX.pack(16, startup.CANCEL_REQUEST) + b"12345678",
        startup.PREFIX.pack(4, 0),
        startup.PREFIX.pack(2**31, startup.PROTOCOL_3_0),
    ],
)
def test_bad_first_bytes_end_only_their_own_connection(served: RunningGateway, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 10) as raw, contextlib.suppress(OSError):
        raw.sendall(first)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(1000):
            pass
    with served.connect():
        pass


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\3",
        b"\xff\xff\xff\xff\0\0\0\0",
        frames.packet(b"\0\3\0\0"),
        frames.packet(b"\0\3\0\0user\0admin"),
        frames.packet(b"\0\3\0\0user\0admin\0\0") + b"Q\0\0\0\5\0",
        frames.packet(b"\0\3\0\0user\0admin\0\0") + b"p\0\1\xff\xff",
        frames.packet(b"\0\3\0\0user\0admin\0\0") + b"p\0\0\0\4",
        frames.packet(startup.CANCEL_REQUEST.to_bytes(4, "big") + b"12345678"),
    ],
)
def test_malformed_logins_end_only_their_own_connection(served: RunningGateway, sent: bytes) -> None:
    with RawClient(served) as client:
        client.send(sent + b"\0" * 12_000)
        client.expect_end()
    with served.connect():
        pass


def test_a_cancellation_has_no_effect(connection: Connection) -> None:
    connection.pgconn.send_query(b"SELECT pg_sleep(0.3)")
    connection.cancel_safe()
    result = next_result(connection.pgconn)
    assert result is not None
    assert result.command_status == b"SELECT 1"
    assert next_result(connection.pgconn) is None


def test_asyncpg_works_through_localhost(served: RunningGateway) -> None:
    import asyncpg

    async def ask() -> Any:
        context = ssl.create_default_context(cafile=str(served.root_file))
        connection = await asyncpg.connect(
            host="localhost",
            port=served.port,
            user="admin",
            database="postgres",
            password=served.token(host="localhost"),
            ssl=context,
        )
        try:
            async with connection.transaction():
                return await connection.fetchval("SELECT $1::int + 1", 1)
        finally:
            await connection.close()

    assert asyncio.run(ask()) == 2


def test_the_official_connector_works(served: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    import aurora_dsql_psycopg

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", served.principal.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", served.principal.secret_access_key)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    info = served.conninfo()
    del info["password"]
    with aurora_dsql_psycopg.connect(**info) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.skipif(shutil.which("psql") is None, reason="this machine has no psql")
def test_psql_works(served: RunningGateway) -> None:
    info = served.conninfo()
    environment = os.environ | {
        "PGHOST": info["host"],
        "PGHOSTADDR": info["hostaddr"],
        "PGPORT": str(info["port"]),
        "PGUSER": "admin",
        "PGDATABASE": "postgres",
        "PGPASSWORD": info["password"],
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": info["sslrootcert"],
    }
    run = subprocess.run(
        ["psql", "-X", "-A", "-t", "-c", "SELECT 1; SELECT 2", "-c", "LOCK TABLE t"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.stdout.split() == ["1", "2"]
    assert "ERROR:  unsupported statement: Lock" in run.stderr
