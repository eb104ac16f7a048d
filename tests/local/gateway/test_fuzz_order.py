"""Clients that send wildly, but messages that are right: they are answered as by PostgreSQL, in the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from pytest_dsql.local.cluster import Cluster
from tests.local.gateway.fuzzing import share
from tests.local.gateway.fuzzing.clients import CLIENTS, mark, own, resynchronise, run_all, trickle
from tests.local.gateway.fuzzing.memory import MemoryClient
from tests.local.gateway.fuzzing.reference import Direct, normal, without_gateway
from tests.local.gateway.fuzzing.rules import judge
from tests.local.gateway.fuzzing.streams import COPY_FAIL, SYNC, query, well_formed
from tests.local.gateway.harness import RunningGateway, run_gateway


@pytest.fixture(scope="module")
def judged(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the dialect's rules."""
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"), judge=judge)


@pytest.mark.usefixtures("tables")
def test_wild_streams_are_answered_as_by_postgresql(judged: RunningGateway) -> None:
    token = judged.token()

    async def job(number: int) -> None:
        async with AsyncExitStack() as stack:
            client = await MemoryClient(judged).logged_in(token)
            pure = await Direct.opened(judged.cluster.socket_path)
            stack.callback(lambda: client.leave())  # noqa: PLW0108 - the last client, not this one
            stack.callback(lambda: pure.close())  # noqa: PLW0108
            for seed in share(0.05)[number::CLIENTS]:
                r = random.Random(f"wild {seed}")
                wild = well_formed(r)
                asked = own(without_gateway(wild), f"pure{number}", mark(number))
                pure.send(b"".join([*asked, COPY_FAIL, SYNC, query("ROLLBACK"), query(f"SELECT 'end of {seed}'")]))
                await pure.until(f"end of {seed}".encode())
                wanted = normal(pure.take().replace(f"pure{number}".encode(), f"fuzz{number}".encode()))
                parts = own(wild, f"fuzz{number}", mark(number))
                await trickle(client, b"".join(parts), r)
                found = normal(await resynchronise(client, number, seed))
                assert client.closed == pure.ended, (seed, parts)
                if not pure.ended:
                    assert found == wanted, (seed, parts)
                else:
                    # PostgreSQL gives up on clients that send something else in the middle of a COPY. What it said
                    # before may be lost on the way when the client goes on sending.
                    client = await MemoryClient(judged).logged_in(token)
                    pure = await Direct.opened(judged.cluster.socket_path)

    run_all(judged, [lambda number=number: job(number) for number in range(CLIENTS)])  # type: ignore[misc]
