"""Every way in which a connection can fail to be made, within bounds; no secret shows, and no socket is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.connect import refusal
from pytest_dsql.connect.dialer import Dial, dial, dial_async
from pytest_dsql.connect.endpoint import AMAZON_ROOT, Endpoint, PasswordAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, ErrorClass
from tests.connect.conftest import error_response, hold, listening, refusing
from tests.connect.dialling import SECRET, failure, plain
from tests.plain_postgres import PlainPostgres


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
            error = failure(plain(port, sslmode=sslmode), timeout_s=1.0)
        assert error.phase == phase
        assert "no answer within" in str(error)
        assert time.monotonic() - started < 20

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
