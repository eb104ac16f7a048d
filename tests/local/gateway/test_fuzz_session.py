"""Hostile clients in their sessions: messages that are bent inside, and broken streams. They hurt nobody else."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from tests.local.gateway.fuzzing import share
from tests.local.gateway.fuzzing.clients import (
    CLIENTS,
    assert_only_own_marks,
    mark,
    own,
    resynchronise,
    run_all,
    trickle,
)
from tests.local.gateway.fuzzing.memory import MemoryClient, messages
from tests.local.gateway.fuzzing.streams import bent_inside, broken
from tests.local.gateway.harness import RunningGateway


@pytest.mark.usefixtures("tables")
def test_messages_that_are_bent_inside_hurt_nobody(served: RunningGateway) -> None:
    token = served.token()

    async def job(number: int) -> None:
        async with AsyncExitStack() as stack:
            client = await MemoryClient(served).logged_in(token)
            stack.callback(lambda: client.leave())  # noqa: PLW0108 - the last client, not this one
            for seed in share(0.05)[number::CLIENTS]:
                r = random.Random(f"inside {seed}")
                await trickle(client, b"".join(own(bent_inside(r), f"fuzz{number}", mark(number))), r)
                await resynchronise(client, number, seed)
                if client.closed:
                    # PostgreSQL may give up on a client; the gateway may do no more than that.
                    client = await MemoryClient(served).logged_in(token)

    run_all(served, [lambda number=number: job(number) for number in range(CLIENTS)])  # type: ignore[misc]


@pytest.mark.usefixtures("tables")
def test_broken_streams_hurt_nobody(served: RunningGateway) -> None:
    token = served.token()

    async def job(number: int) -> None:
        for seed in share(0.02)[number::CLIENTS]:
            r = random.Random(f"broken {seed}")
            client = await MemoryClient(served).logged_in(token)
            await trickle(client, broken(r).replace(b"$t", b"fz").replace(b"$m", b"m"), r)
            await asyncio.sleep(0.002)
            received = client.take()
            assert_only_own_marks(number, received)
            messages(received)
            client.leave()

    run_all(served, [lambda number=number: job(number) for number in range(CLIENTS)])  # type: ignore[misc]
