"""Hostile clients before their session begins: startup packets, tokens, first bytes, logins. Nobody gets in."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames, startup, token
from pytest_dsql.local.gateway.hello import Greeting, greet
from tests.local.gateway.fuzzing import share
from tests.local.gateway.fuzzing.memory import MemoryClient, messages, startup_packet
from tests.local.gateway.fuzzing.mutations import bent, chopped, spliced
from tests.local.gateway.harness import REGION, RunningGateway, sign

_NAMES: Final = (
    "user",
    "database",
    "options",
    "application_name",
    "client_encoding",
    "search_path",
    "_pq_.x",
    "role",
    "",
)
_VALUES: Final = ("admin", "postgres", "app", "-c a=b", "-c", "--search_path=x", "\\", "UTF8", "", "pytest_dsql_engine")


def packet(r: random.Random) -> bytes:
    """A startup packet, mostly one that could be right."""
    pairs = [("user", "admin"), ("database", "postgres")] if r.random() < 0.7 else []
    pairs += [(r.choice(_NAMES), r.choice(_VALUES)) for _ in range(r.choice((0, 0, 1, 2, 5, 40)))]
    version = r.choice((3 << 16, 3 << 16, 3 << 16, (3 << 16) + 2, 2 << 16, startup.SSL_REQUEST, r.getrandbits(32)))
    return startup_packet(*r.sample(pairs, len(pairs)), version=version)


def test_startup_packets_are_read_or_refused() -> None:
    for seed in share(0.3):
        r = random.Random(f"startup {seed}")
        data = packet(r)
        if seed % 4:
            data = bent(data, r)
        if len(data) < startup.PREFIX.size:
            continue
        try:
            asked = startup.read(data)
            asked.check()
        except startup.StartupRefused:
            continue
        # What goes to PostgreSQL asks for the same, and for nothing that DSQL refuses.
        again = startup.read(asked.packet())
        assert (again.user, again.database) == (asked.user, asked.database) == (asked.user, "postgres"), seed
        assert {name.lower() for name, _ in again.settings} <= startup.SETTABLE, seed


@pytest.fixture(scope="module")
def valid(cluster: Cluster) -> bytes:
    """A token that opens the cluster to `admin`."""
    return sign(cluster.principals[0], cluster.host, "DbConnectAdmin").encode()


def meaning(presented: token.Token) -> tuple[Any, ...]:
    """What a token says, whatever its spelling."""
    return presented.host, sorted(presented.parameters), presented.signature


def bent_token(valid: bytes, r: random.Random) -> bytes:
    """A token bent in its bytes or in its parts."""
    if r.random() < 0.5:
        return bent(valid, r)
    address, _, query = valid.partition(b"?")
    pairs = spliced(query.split(b"&"), r)
    if pairs and r.random() < 0.8:
        place = r.randrange(len(pairs))
        pairs[place] = bent(pairs[place], r, 2)
    return address + b"?" + b"&".join(pairs)


def accepted(cluster: Cluster, password: bytes, user: str) -> token.Token | None:
    try:
        presented = token.read(password)
        token.verify(
            presented, user=user, hosts=(cluster.host,), region=REGION, principals=cluster.principals, now=time.time()
        )
    except token.TokenRefused as refused:
        repeated = len(password) > 100 and password.decode("latin-1") in refused.hint
        return pytest.fail("the hint repeats the token") if repeated else None
    return presented


def test_bent_tokens_are_refused(cluster: Cluster, valid: bytes) -> None:
    said = meaning(token.read(valid))
    assert accepted(cluster, valid, "admin")
    for seed in share(0.3):
        r = random.Random(f"token {seed}")
        user = r.choice(("admin", "admin", "admin", "app", "Admin", ""))
        presented = accepted(cluster, bent_token(valid, r), user)
        # What was bent may still mean the same: an order of parameters, an escaped letter.
        assert presented is None or (user == "admin" and meaning(presented) == said), seed


def test_first_bytes_lead_to_tls_or_to_the_end() -> None:
    valid = [
        startup.PREFIX.pack(8, startup.SSL_REQUEST),
        startup.PREFIX.pack(8, startup.GSSENC_REQUEST),
        startup.PREFIX.pack(16, startup.CANCEL_REQUEST) + b"12345678",
        startup_packet(("user", "admin")),
        b"\x16\x03\x01\x02\x00\x01",
    ]

    async def one(seed: int) -> None:
        r = random.Random(f"greeting {seed}")
        data = b"".join(r.choice(valid) for _ in range(r.randint(1, 3)))
        if seed % 3:
            data = bent(data, r)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                greeting = await asyncio.wait_for(greet(theirs), 10)
                if greeting is not Greeting.DONE:
                    # TLS is left unread for whoever speaks it.
                    rest = theirs.recv(len(data) + 1)
                    assert data.endswith(rest), seed
                    assert greeting is not Greeting.DIRECT_TLS or rest[:1] == b"\x16", seed
            theirs.close()
            ours.setblocking(False)
            with contextlib.suppress(ConnectionResetError):  # something that was sent was never read
                assert ours.recv(1000)[:1] in (b"", b"S", b"N", b"E"), seed

    async def all_of_them() -> None:
        for seed in share(0.1):
            await one(seed)

    asyncio.run(all_of_them())


@pytest.fixture
def unlimited(cluster: Cluster) -> Iterator[None]:
    """No limit on how many connect."""
    limits = cluster.limits
    cluster.limits = replace(limits, connect_rate_per_s=1e9, connect_burst=1_000_000_000)
    yield
    cluster.limits = limits


def login_bytes(valid: bytes, r: random.Random) -> bytes:
    """A login with something wrong about it, most often."""
    first = startup_packet(("user", "admin"), ("database", "postgres"))
    password = frames.message(frames.PASSWORD, valid + b"\0")
    kind = r.randrange(6)
    if kind == 0:
        return packet(r) + bent(password, r)
    if kind == 1:
        return first + frames.message(frames.PASSWORD, bent_token(valid, r) + b"\0")
    if kind == 2:
        return bent(first + password, r)
    if kind == 3:
        return first + frames.message(r.choice(b"QPBESpXd\0\xff"), bent(valid, r))
    if kind == 4:
        return b"".join(spliced([first, password, frames.message(frames.QUERY, b"SELECT 1\0")], r))
    return first + password[: r.randrange(len(password))]


@pytest.mark.usefixtures("unlimited")
def test_nobody_gets_in_without_a_valid_token(served: RunningGateway, valid: bytes) -> None:
    said = meaning(token.read(valid))

    async def one(seed: int) -> None:
        r = random.Random(f"login {seed}")
        data = login_bytes(valid, r)
        client = MemoryClient(served)
        for part in chopped(data, r):
            await client.send(part)
            if client.closed:
                break
        await client.transport.readable()
        received = messages(client.take())
        client.leave()
        await asyncio.sleep(0)
        if ("R", b"\0\0\0\0") in received:
            # It was believed: then its token must be the valid one, in whatever spelling.
            assert meaning(token.read(password_in(data))) == said, seed

    async def all_of_them() -> None:
        for seed in share(0.2):
            await one(seed)

    asyncio.run_coroutine_threadsafe(all_of_them(), served.loop).result(600)
    served.wait_sessions(0)
    with served.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def password_in(data: bytes) -> bytes:
    """The password of a login, as the gateway would find it."""
    length, _ = startup.PREFIX.unpack_from(data)
    rest = data[length:]
    _, size = frames.HEADER.unpack_from(rest)
    return rest[frames.HEADER_SIZE : size]
