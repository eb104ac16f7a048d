"""The dialer: real connections with their phases, and tokens that are signed anew."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.connect import token as token_module
from pytest_dsql.connect.dialer import Dial, _in_turn, dial, dial_async
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, CredentialsError
from tests.connect.conftest import error_response, hold, listening
from tests.connect.dialling import SECRET, failure, plain

#: Whose tokens are sent to servers without TLS, so that the wire can be looked at.
IAM = Endpoint("localhost", region="eu-central-1", auth=IamAuth(access_key_id="AKIAX", secret_access_key="s"))


class TestConnected:
    def test_over_tls_every_phase_takes_its_time(self, tls_endpoint: Endpoint) -> None:
        connection, phases = dial(tls_endpoint, TokenSource(tls_endpoint))
        with connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT 1").fetchone() == (1,)
        parts = (phases.tcp_ns, phases.tls_ns, phases.authentication_ns)
        assert all(part > 0 for part in parts)
        assert phases.resolve_ns + sum(parts) + phases.startup_ns == phases.total_ns

    def test_without_tls_that_phase_takes_none(self, endpoint: Endpoint) -> None:
        connection, phases = dial(endpoint, TokenSource(endpoint))
        with connection:
            assert not connection.pgconn.ssl_in_use
        assert phases.tls_ns == 0
        assert phases.authentication_ns > 0

    def test_a_refused_tls_that_was_only_preferred_is_no_failure(self, endpoint: Endpoint) -> None:
        preferring = replace(endpoint, sslmode="prefer")
        connection, phases = dial(preferring, TokenSource(preferring))
        with connection:
            assert not connection.pgconn.ssl_in_use
        assert min(phases.tcp_ns, phases.tls_ns, phases.authentication_ns, phases.startup_ns) >= 0

    def test_it_is_an_ordinary_connection_in_autocommit_mode(self, endpoint: Endpoint) -> None:
        connection, _ = dial(endpoint, TokenSource(endpoint))
        with connection:
            assert type(connection) is psycopg.Connection
            assert connection.autocommit
            assert connection.pgconn.nonblocking
            with connection.transaction():
                assert connection.execute("SELECT %s::int", (2,)).fetchone() == (2,)

    def test_statements_report_errors_as_usual(self, endpoint: Endpoint) -> None:
        connection, _ = dial(endpoint, TokenSource(endpoint))
        with connection, pytest.raises(psycopg.errors.UndefinedTable) as caught:
            connection.execute("SELECT * FROM absent")
        assert "LOCATION" not in str(caught.value)

    def test_an_asynchronous_connection_is_made_likewise(self, tls_endpoint: Endpoint) -> None:
        async def connect() -> tuple[object, bool, int]:
            connection, phases = await dial_async(
                tls_endpoint, TokenSource(tls_endpoint), connection_class=psycopg.AsyncConnection
            )
            async with connection:
                cursor = await connection.execute("SELECT 1")
                return await cursor.fetchone(), connection.autocommit, phases.tls_ns

        answer, autocommit, tls_ns = asyncio.run(connect())
        assert (answer, autocommit) == ((1,), True)
        assert tls_ns > 0

    def test_many_are_made_in_one_loop(self, tls_endpoint: Endpoint) -> None:
        endpoint = tls_endpoint.resolved()
        made = []
        with selectors.DefaultSelector() as selector:
            password = TokenSource(endpoint).token()
            for _ in range(20):
                attempt = Dial(endpoint, password)
                selector.register(attempt.fileno(), attempt.wants, attempt)
            while selector.get_map():
                for key, _ in selector.select(10):
                    attempt = key.data
                    selector.unregister(key.fd)
                    if attempt.advance():
                        made.append(attempt)
                    else:
                        selector.register(attempt.fileno(), attempt.wants, attempt)
        assert len(made) == 20
        for attempt in made:
            assert attempt.pgconn.status == pq.ConnStatus.OK
            attempt.pgconn.finish()

    def test_a_host_that_listens_on_one_family_only_is_reached(self, endpoint: Endpoint) -> None:
        for addresses in ("::1,127.0.0.1", "127.0.0.1,::1"):
            dual = replace(endpoint, host="localhost", hostaddr=addresses)
            connection, _ = dial(dual, TokenSource(dual))
            connection.close()

    def test_the_addresses_of_a_family_take_turns(self) -> None:
        endpoint = plain(1, hostaddr="2001:db8::1,2001:db8::2,192.0.2.1,192.0.2.2")
        firsts = set()
        for _ in range(4):
            order = _in_turn(endpoint.addresses)
            assert sorted(order) == sorted(endpoint.addresses)
            firsts.add(order[0])
        assert firsts == {"2001:db8::1", "2001:db8::2"}

    def test_a_unix_socket_is_dialled_too(self, tmp_path: Path) -> None:
        endpoint = plain(5432, host=str(tmp_path))
        error = failure(endpoint)
        assert error.phase == "tcp"


class TestTokens:
    @pytest.fixture
    def signatures(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Tokens that tell their number."""
        signed: list[str] = []

        def sign(*args: object) -> str:
            signed.append(f"{SECRET}-{len(signed)}")
            return signed[-1]

        monkeypatch.setattr(token_module, "sign_token", sign)
        return signed

    @staticmethod
    @contextlib.contextmanager
    def denying(hint: str | None, welcome: int) -> Iterator[tuple[int, list[bytes]]]:
        """A server that denies every password but the `welcome`-th token's."""
        passwords: list[bytes] = []
        lock = threading.Lock()

        def serve(client: socket.socket) -> None:
            client.recv(4096)
            client.sendall(b"R\0\0\0\x08\0\0\0\x03")
            password = client.recv(4096)[5:-1]
            with lock:
                passwords.append(password)
            if password.endswith(b"-%d" % welcome):
                client.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
                hold(client)
            else:
                fields = {"H": hint} if hint else {}
                client.sendall(error_response("08006", "unable to accept connection, access denied", **fields))
                client.close()

        with listening(serve) as port:
            yield port, passwords

    @pytest.mark.parametrize("hint", ["Signature expired: 20261130T090000Z", None])
    def test_a_stale_token_is_signed_anew_once(self, signatures: list[str], hint: str | None) -> None:
        with self.denying(hint, welcome=1) as (port, passwords):
            endpoint, tokens = plain(port), TokenSource(IAM)
            tokens.token()
            connection, _ = dial(endpoint, tokens)
            connection.close()
        assert len(passwords) == 2
        assert tokens.signed == 2

    def test_a_fresh_token_that_is_refused_is_not_tried_again(self, signatures: list[str]) -> None:
        with self.denying("Signature expired: x", welcome=99) as (port, passwords), pytest.raises(ConnectionFailed):
            dial(plain(port), TokenSource(IAM))
        assert len(passwords) == 1

    def test_a_stale_token_is_not_tried_for_ever(self, signatures: list[str]) -> None:
        with self.denying("Signature expired: x", welcome=99) as (port, passwords):
            endpoint, tokens = plain(port), TokenSource(IAM)
            tokens.token()
            with pytest.raises(ConnectionFailed):
                dial(endpoint, tokens)
        assert len(passwords) == 2

    def test_a_missing_permission_is_not_tried_again(self, signatures: list[str]) -> None:
        with self.denying("User: x is not authorized to perform: dsql:DbConnect", welcome=1) as (port, passwords):
            endpoint, tokens = plain(port), TokenSource(IAM)
            tokens.token()
            with pytest.raises(ConnectionFailed, match="not authorized"):
                dial(endpoint, tokens)
        assert len(passwords) == 1

    def test_missing_credentials_are_told_as_such(self, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
        def none(auth: IamAuth) -> None:
            raise CredentialsError("none")

        monkeypatch.setattr(token_module, "signing_keys", none)
        with pytest.raises(CredentialsError):
            dial(plain(closed_port), TokenSource(IAM))
