"""The dialer: real connections with their phases, and every way in which one can fail, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.connect import refusal
from pytest_dsql.connect import token as token_module
from pytest_dsql.connect.dialer import Dial, _in_turn, dial, dial_async
from pytest_dsql.connect.endpoint import AMAZON_ROOT, Endpoint, IamAuth, PasswordAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, CredentialsError, ErrorClass
from tests.connect.conftest import error_response, hold, listening, refusing
from tests.plain_postgres import PlainPostgres

SECRET = "geheim-9f86d081884c7d65"
#: Whose tokens are sent to servers without TLS, so that the wire can be looked at.
IAM = Endpoint("localhost", region="eu-central-1", auth=IamAuth(access_key_id="AKIAX", secret_access_key="s"))


def plain(port: int, **fields: Any) -> Endpoint:
    """An endpoint without TLS on this host."""
    given: dict[str, Any] = {
        "host": "127.0.0.1",
        "user": "u",
        "sslmode": "disable",
        "auth": PasswordAuth(SECRET),
    } | fields
    return Endpoint(port=port, dialect="postgresql", **given)


def failure(endpoint: Endpoint, timeout_s: float = 10.0) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as caught:
        dial(endpoint, TokenSource(endpoint), timeout_s=timeout_s, patient=False)
    error = caught.value
    assert "\n" not in str(error)
    assert SECRET not in str(error) + repr(error)
    return error


def open_sockets_to(port: int) -> list[str]:
    """This process's connections to a port of this host."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(link.stat().st_mode):
                with socket.socket(fileno=os.dup(int(link.name))) as one:
                    if one.getpeername()[1:2] == (port,):
                        found.append(link.name)
    return found


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


class TestRefused:
    @pytest.mark.parametrize(
        ("sqlstate", "message", "hint", "expected"),
        [
            ("08006", "unable to accept connection, access denied", "Signature expired: x", ErrorClass.AUTH),
            ("53300", "Unable to accept connection, too many open connections.", None, ErrorClass.LIMIT),
            ("53400", "Unable to accept connection, rate exceeded.", None, ErrorClass.LIMIT),
            ("0A000", 'setting configuration parameter "x" not supported', None, ErrorClass.OTHER),
            ("XX123", "unable to accept connection, waking up cluster, please retry later", None, ErrorClass.TRANSIENT),
            ("12345", "a text nobody has seen yet", None, ErrorClass.OTHER),
        ],
    )
    @pytest.mark.skipif(refusal._verbosity_function() is None, reason="this libpq keeps SQLSTATEs to itself")
    def test_the_servers_own_sqlstate_and_hint_are_told(
        self, sqlstate: str, message: str, hint: str | None, expected: ErrorClass
    ) -> None:
        with refusing(sqlstate, message, **({"H": hint} if hint else {})) as port:
            error = failure(plain(port))
        assert (error.sqlstate, error.hint, error.phase) == (sqlstate, hint, "authentication")
        assert message in str(error)
        assert hint is None or hint in str(error)
        assert error.error_class is expected

    def test_a_wrong_password_is_an_authentication_failure(self, tls_endpoint: Endpoint) -> None:
        error = failure(replace(tls_endpoint, auth=PasswordAuth(SECRET)))
        assert (error.phase, error.sqlstate, error.error_class) == ("authentication", "28P01", ErrorClass.AUTH)

    def test_an_unknown_database_is_told_by_its_sqlstate(self, endpoint: Endpoint) -> None:
        assert failure(replace(endpoint, dbname="absent")).sqlstate == "3D000"

    def test_a_libpq_whose_verbosity_cannot_be_set_still_tells_known_refusals(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refusal, "_verbosity_function", lambda: None)
        with refusing("08006", "unable to accept connection, access denied", H="expired") as port:
            error = failure(plain(port))
        assert (error.sqlstate, error.hint, error.error_class) == ("08006", "expired", ErrorClass.AUTH)

    def test_the_hint_is_masked(self) -> None:
        hint = "User: arn:aws:iam::123456789012:user/x is not authorized to perform: dsql:DbConnectAdmin"
        with refusing("08006", "unable to accept connection, access denied", H=hint) as port:
            error = failure(plain(port))
        assert "123456789012" not in f"{error}{error.hint}"

    def test_a_server_that_said_no_is_not_asked_again_at_its_other_address(self) -> None:
        asked = []

        def serve(client: socket.socket) -> None:
            asked.append(client.recv(4096))
            client.sendall(error_response("28000", "no"))
            client.close()

        with listening(serve) as port:
            failure(plain(port, host="localhost", hostaddr="127.0.0.1,127.0.0.1"))
        assert len(asked) == 1


class TestUnreachable:
    def test_nobody_listening(self, closed_port: int) -> None:
        error = failure(plain(closed_port))
        assert (error.phase, error.sqlstate, error.error_class) == ("tcp", None, ErrorClass.CONNECTION)
        assert "refused" in str(error)

    def test_an_unknown_host(self) -> None:
        assert failure(plain(5432, host="absent.invalid")).phase == "resolve"

    def test_a_host_that_swallows_packets(self) -> None:
        # A listener whose backlog is full drops further SYNs.
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            try:
                error = failure(plain(port), timeout_s=0.3)
            finally:
                for filler in fillers:
                    filler.close()
        assert error.phase == "tcp"
        assert "within" in str(error)

    @pytest.mark.parametrize(
        ("sslmode", "phase"), [("disable", "authentication"), ("require", "tls")], ids=["before", "in TLS"]
    )
    def test_a_silent_server(self, sslmode: str, phase: str) -> None:
        with listening(hold) as port:
            started = time.monotonic()
            error = failure(plain(port, sslmode=sslmode), timeout_s=0.3)
        assert error.phase == phase
        assert "no answer within" in str(error)
        assert time.monotonic() - started < 5

    def test_a_server_that_falls_silent_behind_the_password(self) -> None:
        def serve(client: socket.socket) -> None:
            client.recv(4096)
            client.sendall(b"R\0\0\0\x08\0\0\0\x03")  # AuthenticationCleartextPassword
            hold(client)

        with listening(serve) as port:
            assert failure(plain(port), timeout_s=0.3).phase == "authentication"

    def test_a_server_that_falls_silent_behind_the_authentication(self) -> None:
        def serve(client: socket.socket) -> None:
            client.recv(4096)
            client.sendall(b"R\0\0\0\x08\0\0\0\0")  # AuthenticationOk
            hold(client)

        with listening(serve) as port:
            assert failure(plain(port), timeout_s=0.3).phase == "startup"

    @pytest.mark.parametrize(
        ("sslmode", "phase"), [("disable", "authentication"), ("require", "tls")], ids=["before", "in TLS"]
    )
    def test_a_server_that_hangs_up(self, sslmode: str, phase: str) -> None:
        def serve(client: socket.socket) -> None:
            client.recv(4096)
            client.close()

        with listening(serve) as port:
            error = failure(plain(port, sslmode=sslmode))
        assert (error.phase, error.sqlstate, error.error_class) == (phase, None, ErrorClass.CONNECTION)

    def test_a_server_without_tls_where_it_is_demanded(self, endpoint: Endpoint) -> None:
        error = failure(replace(endpoint, sslmode="require"))
        assert error.phase == "tls"
        assert "SSL" in str(error)

    def test_a_server_that_speaks_something_else(self) -> None:
        def serve(client: socket.socket) -> None:
            client.recv(4096)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            client.close()

        with listening(serve) as port:
            assert failure(plain(port)).phase == "authentication"

    def test_a_certificate_of_a_stranger(self, tls_endpoint: Endpoint) -> None:
        error = failure(replace(tls_endpoint, sslrootcert=str(AMAZON_ROOT)))
        assert error.phase == "tls"
        assert "sslrootcert" in str(error)

    def test_a_root_certificate_that_is_not_there(self, tls_endpoint: Endpoint, tmp_path: Path) -> None:
        error = failure(replace(tls_endpoint, sslrootcert=str(tmp_path / "absent.pem")))
        assert error.phase == "tls"
        assert "absent.pem" in str(error)

    def test_a_name_that_the_certificate_is_not_for(self, tls_endpoint: Endpoint) -> None:
        error = failure(replace(tls_endpoint, host="other.example", hostaddr="127.0.0.1"))
        assert error.phase == "tls"
        assert "other.example" in str(error)

    @pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of this host")
    def test_a_silent_address_leaves_time_for_the_next(self, server: PlainPostgres, endpoint: Endpoint) -> None:
        with listening(hold, host="127.0.0.2", port=server.port):
            for _ in range(2):  # each address is the first one once
                both = replace(endpoint, hostaddr="127.0.0.2,127.0.0.1")
                connection, _phases = dial(both, TokenSource(both), timeout_s=4.0)
                connection.close()


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


class TestSecrecy:
    def test_no_frame_of_the_traceback_holds_the_password(self, closed_port: int) -> None:
        endpoint = plain(closed_port)
        try:
            dial(endpoint, TokenSource(endpoint))
        except ConnectionFailed as error:
            shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert SECRET not in "".join(shown.format())

    def test_a_silent_servers_traceback_neither(self) -> None:
        with listening(hold) as port:
            endpoint = plain(port)
            try:
                dial(endpoint, TokenSource(endpoint), timeout_s=0.2)
            except ConnectionFailed as error:
                shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert SECRET not in "".join(shown.format())

    def test_the_attempt_shows_nothing(self) -> None:
        with listening(hold) as port:
            attempt = Dial(plain(port), SECRET)
            assert SECRET not in repr(attempt)
            attempt.close()
            assert SECRET not in repr(vars(attempt))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
class TestNothingLeft:
    def test_no_socket_of_a_silent_server(self) -> None:
        with listening(hold) as port:
            failure(plain(port), timeout_s=0.2)
            assert not open_sockets_to(port)

    def test_no_socket_of_a_server_that_refused(self) -> None:
        with refusing("28000", "no") as port:
            failure(plain(port))
            assert not open_sockets_to(port)

    def test_no_socket_of_an_asynchronous_attempt_that_was_cancelled(self) -> None:
        async def cancelled(endpoint: Endpoint) -> None:
            async with asyncio.timeout(0.2):
                await dial_async(endpoint, TokenSource(endpoint), connection_class=psycopg.AsyncConnection)

        with listening(hold) as port:
            with pytest.raises(TimeoutError):
                asyncio.run(cancelled(plain(port)))
            assert not open_sockets_to(port)


def test_an_asynchronous_attempt_has_its_bound_too() -> None:
    async def slow(endpoint: Endpoint) -> None:
        await dial_async(endpoint, TokenSource(endpoint), timeout_s=0.2, connection_class=psycopg.AsyncConnection)

    with listening(hold) as port, pytest.raises(ConnectionFailed, match="no answer"):
        asyncio.run(slow(plain(port)))
