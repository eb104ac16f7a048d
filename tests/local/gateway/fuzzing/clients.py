"""Hostile clients side by side in the gateway's loop, and what must hold whatever they send."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.local.gateway.fuzzing.memory import MemoryClient, ends_ready, messages
from tests.local.gateway.fuzzing.mutations import chopped
from tests.local.gateway.fuzzing.streams import COPY_FAIL, SYNC, query
from tests.local.gateway.harness import RunningGateway

#: Clients at the same time, each with a table and a mark of its own.
CLIENTS: Final = 4
#: What the process may grow by, whatever clients send. Bytes.
_GROWTH: Final = 200 * 2**20


def mark(number: int) -> str:
    """What only this client's answers may hold."""
    return f"mark{number}mark"


def own(parts: list[bytes], table: str, said: str) -> list[bytes]:
    """Put the client's table and mark into its messages; both are as long as what stands for them."""
    assert len(said) == len(mark(0))
    found = []
    for part in parts:
        kind, payload = part[:1], part[5:].replace(b"$t", table.encode()).replace(b"$m", said.encode())
        found.append(kind + (len(payload) + 4).to_bytes(4, "big") + payload)
    return found


class Errors:
    """What went wrong in the gateway's loop without anybody hearing of it."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(repr(context))


def run_all(served: RunningGateway, jobs: list[Callable[[], Awaitable[None]]]) -> None:
    """Run jobs at the same time in the gateway's loop; nothing may go wrong in it, and memory stays bounded."""
    errors = Errors()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(errors)
        try:
            await asyncio.gather(*(job() for job in jobs))
        finally:
            loop.set_exception_handler(None)

    before = resident()
    asyncio.run_coroutine_threadsafe(run(), served.loop).result(3_000)
    assert errors.found == []
    assert resident() - before < _GROWTH
    served.wait_sessions(0)
    with served.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def assert_only_own_marks(number: int, received: bytes) -> None:
    for other in range(CLIENTS):
        assert other == number or mark(other).encode() not in received, f"client {number} got data of client {other}"


async def trickle(client: MemoryClient, data: bytes, r: random.Random) -> None:
    """Send in pieces, with time for the gateway's other business now and then."""
    for part in chopped(data, r):
        if client.closed:
            return
        await client.send(part)
        if r.random() < 0.3:
            await asyncio.sleep(0)


async def resynchronise(client: MemoryClient, number: int, seed: int) -> bytes:
    """Bring a session back to where it was in the beginning, if it hasn't ended; give what it was answered so far."""
    last = f"end of {seed}".encode()
    await client.send(COPY_FAIL + SYNC + query("ROLLBACK") + query(f"SELECT '{last.decode()}'"))
    await client.until(lambda received: last in received and ends_ready(received), 30)
    received = client.take()
    assert_only_own_marks(number, received)
    messages(received)
    return received
