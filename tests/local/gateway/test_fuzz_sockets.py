"""Hostile clients over real sockets: bent TLS records, bytes of anything, connections that break in the middle."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct

import pytest

from pytest_dsql.local.gateway import frames, startup
from tests.local.gateway.fuzzing import share
from tests.local.gateway.fuzzing.memory import startup_packet
from tests.local.gateway.fuzzing.mutations import bent, chopped
from tests.local.gateway.fuzzing.streams import broken, query
from tests.local.gateway.harness import RawClient, RunningGateway

_ASKING = startup.PREFIX.pack(8, startup.SSL_REQUEST)


def client_hello(served: RunningGateway, r: random.Random) -> bytes:
    """The first record of a handshake that would succeed."""
    context = ssl.create_default_context(cafile=str(served.root_file))
    if r.random() < 0.5:
        context.set_alpn_protocols(["postgresql"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, outgoing, server_hostname=served.cluster.host)
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


def reset(raw: socket.socket) -> None:
    """Break a connection with an RST."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


def drain(raw: socket.socket) -> bytes:
    """What comes until the gateway ends the connection."""
    found = b""
    with contextlib.suppress(OSError):
        while part := raw.recv(65_536):
            found += part
    return found


@pytest.mark.usefixtures("tables")
def test_bent_handshakes_end_only_their_own_connection(served: RunningGateway) -> None:
    for seed in share(0.01):
        r = random.Random(f"handshake {seed}")
        hello = client_hello(served, r)
        data = r.choice((b"", _ASKING)) + (bent(hello, r) if seed % 8 else hello + r.randbytes(50))
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as raw:
            with contextlib.suppress(OSError):
                for part in chopped(data, r):
                    raw.sendall(part)
            if r.random() < 0.3:
                reset(raw)
                continue
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_WR)
            assert b"server_version" not in drain(raw), seed
    with served.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.usefixtures("tables")
def test_logins_over_tls_without_a_valid_token_are_refused(served: RunningGateway) -> None:
    valid = served.token().encode()
    first = startup_packet(("user", "admin"), ("database", "postgres"))
    for seed in share(0.005):
        r = random.Random(f"socket login {seed}")
        wrong = bytearray(valid)
        wrong[-1 - r.randrange(60)] ^= 1  # in the signature
        data = first + frames.message(frames.PASSWORD, bytes(wrong) + b"\0") + query("SELECT 1")
        with RawClient(served) as client:
            with contextlib.suppress(OSError):
                for part in chopped(data if seed % 4 else bent(data, r), r):
                    client.send(part)
                if r.random() < 0.3:
                    reset(client.socket)
                    continue
                client.socket.shutdown(socket.SHUT_WR)
            assert b"server_version" not in client.expect_end(), seed
    served.wait_sessions(0)


@pytest.mark.usefixtures("tables")
def test_sessions_that_break_leave_nothing(served: RunningGateway) -> None:
    token = served.token()
    for seed in share(0.005):
        r = random.Random(f"socket session {seed}")
        with RawClient(served) as client, contextlib.suppress(OSError):
            client.startup(user="admin", database="postgres")
            client.password(token)
            client.until_ready()
            for part in chopped(broken(r).replace(b"$t", b"fuzz0").replace(b"$m", b"m"), r):
                client.send(part)
            if r.random() < 0.6:
                reset(client.socket)
    served.wait_sessions(0)
    with served.connect() as connection:
        # Nobody holds anything.
        assert connection.execute("UPDATE fuzz0 SET v = v").rowcount >= 0
