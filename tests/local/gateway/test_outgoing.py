"""The way to a client: in order, not before its time, without ever holding more than it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvloop

from pytest_dsql.local.gateway.outgoing import Outgoing


class Transport:
    """A client's transport that remembers what it was given, and when."""

    def __init__(self) -> None:
        self.written: list[tuple[bytes, float]] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written.append((data, time.monotonic()))

    def is_closing(self) -> bool:
        return self.closing

    @property
    def data(self) -> bytes:
        return b"".join(data for data, _ in self.written)


def play(script: Callable[[Outgoing, Transport], Any]) -> tuple[Transport, list[bool]]:
    """Run a script, a coroutine function, in a loop like the gateway's."""
    transport = Transport()
    crowded: list[bool] = []

    async def main() -> None:
        await script(Outgoing(cast(asyncio.Transport, transport), crowded.append), transport)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return transport, crowded


def test_what_is_not_held_goes_at_once() -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.send(b"a")
        assert transport.data == b"a"

    play(script)


def test_nothing_goes_before_its_time_and_nothing_overtakes() -> None:
    due = [0.0, 0.0]

    async def script(outgoing: Outgoing, transport: Transport) -> None:
        due[:] = time.monotonic() + 0.05, time.monotonic() + 0.03
        outgoing.hold_until(due[0])
        outgoing.send(b"a")
        outgoing.hold_until(due[1])
        outgoing.send(b"b")
        assert transport.data == b""
        await asyncio.sleep(0.2)
        outgoing.send(b"c")

    transport, _ = play(script)
    assert transport.data == b"abc"
    assert transport.written[0][1] > due[0] - 0.001


def test_what_is_due_earlier_does_not_wait_for_what_comes_later() -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.hold_until(time.monotonic() + 0.02)
        outgoing.send(b"a")
        outgoing.hold_until(time.monotonic() + 30)
        outgoing.send(b"b")
        await asyncio.sleep(0.2)

    assert play(script)[0].data == b"a"


def test_a_flush_sends_what_is_held() -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.hold_until(time.monotonic() + 30)
        outgoing.send(b"a")
        outgoing.flush()
        outgoing.send(b"b")

    assert play(script)[0].data == b"ab"


def test_after_a_drop_nothing_goes() -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.hold_until(time.monotonic() + 0.01)
        outgoing.send(b"a")
        outgoing.drop()
        outgoing.send(b"b")
        outgoing.flush()
        await asyncio.sleep(0.05)

    assert play(script)[0].data == b""


def test_who_sends_too_much_is_told_to_wait_and_to_go_on() -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.hold_until(time.monotonic() + 0.02)
        for _ in range(5):
            outgoing.send(bytes(512 * 1024))
        await asyncio.sleep(0.2)

    transport, crowded = play(script)
    assert crowded == [True, False]
    assert len(transport.data) == 5 * 512 * 1024


@pytest.mark.parametrize("end", ["flush", "drop"])
def test_nothing_is_written_to_a_client_that_is_gone(end: str) -> None:
    async def script(outgoing: Outgoing, transport: Transport) -> None:
        outgoing.hold_until(time.monotonic() + 0.01)
        outgoing.send(b"a")
        transport.closing = True
        getattr(outgoing, end)()
        await asyncio.sleep(0.05)

    assert play(script)[0].data == b""
