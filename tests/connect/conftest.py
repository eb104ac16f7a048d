"""Servers for the connection tests: PostgreSQL with and without TLS, and sockets that misbehave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation


@pytest.fixture(scope="session")
def tls_server() -> Iterator[PlainPostgres]:
    """A PostgreSQL with TLS."""
    if tls_installation() is None:
        pytest.skip("no PostgreSQL with TLS on this machine")
    with plain_postgres(tls=True) as server:
        yield server


@pytest.fixture(scope="session")
def server() -> Iterator[PlainPostgres]:
    """A PostgreSQL without TLS."""
    with plain_postgres() as running:
        yield running


@pytest.fixture
def tls_endpoint(tls_server: PlainPostgres) -> Endpoint:
    return Endpoint.from_dsn(tls_server.dsn)


@pytest.fixture
def endpoint(server: PlainPostgres) -> Endpoint:
    return Endpoint.from_dsn(server.dsn)


@contextmanager
def listening(serve: Callable[[socket.socket], None], host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Run `serve` for each client, in a thread; yields the port. Clients are disconnected at the end."""
    with ExitStack() as cleanup:
        listener = cleanup.enter_context(socket.create_server((host, port)))
        clients: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                clients.append(client)
                threading.Thread(target=_served, args=(serve, client), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for client in clients:
                client.close()


def _served(serve: Callable[[socket.socket], None], client: socket.socket) -> None:
    try:
        serve(client)
    except OSError:
        return  # the client went first


def error_response(sqlstate: str, message: str, **fields: str) -> bytes:
    """Build the ErrorResponse of a refusal."""
    parts = {"S": "FATAL", "V": "FATAL", "C": sqlstate, "M": message} | fields
    body = b"".join(key.encode() + value.encode() + b"\0" for key, value in parts.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


def hold(client: socket.socket) -> None:
    """Keep a client waiting until it, or the test, goes."""
    while client.recv(4096):
        pass


@contextmanager
def refusing(sqlstate: str, message: str, **fields: str) -> Iterator[int]:
    """A server without TLS that refuses every startup message."""

    def serve(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(error_response(sqlstate, message, **fields))
        client.close()

    with listening(serve) as port:
        yield port


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and nobody will: it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        yield port
