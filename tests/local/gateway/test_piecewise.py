"""What the driver runs piece by piece is answered as if it were run whole: frame by frame, as PostgreSQL does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_dsql.local import dialect
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from tests.local.gateway.fuzzing.streams import SYNC, bind, describe, execute, parse, query
from tests.local.gateway.harness import RawClient, RunningGateway, run_gateway


def whole(sql: str) -> bytes:
    """The messages that run a text in the extended protocol, as libpq sends them."""
    return parse(sql) + bind() + describe("P") + execute()


@pytest.fixture(scope="module")
def judged(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with DSQL's rules."""
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"), judge=dialect.judge)


@pytest.fixture
def client(judged: RunningGateway) -> Iterator[RawClient]:
    with RawClient(judged).logged_in() as client:
        client.send(query("CREATE TABLE pieces (k int)"))
        client.until_ready()
        yield client
        client.send(query("ROLLBACK") + query("DROP TABLE IF EXISTS pieces"))
        client.until_ready()
        client.until_ready()


def kinds(client: RawClient) -> str:
    return "".join(kind for kind, _ in client.until_ready())


def test_portals_are_there_behind_a_commit(client: RawClient) -> None:
    client.send(whole("BEGIN") + whole("COMMIT") + whole("SELECT 1") + whole("INSERT INTO pieces VALUES (1)") + SYNC)
    assert kinds(client) == "12nC" + "12nC" + "12TDC" + "12nC" + "Z"


def test_what_follows_a_commit_is_a_transaction_of_its_own(client: RawClient) -> None:
    insert = whole("INSERT INTO pieces VALUES (1)")
    client.send(insert + whole("COMMIT") + insert + whole("SELECT 1 / 0") + SYNC)
    assert kinds(client) == "12nC" + "12nC" + "12nC" + "1EZ"
    client.send(query("SELECT k FROM pieces"))
    assert kinds(client) == "TDCZ"


def test_each_copy_of_a_query_string_has_its_own_data(client: RawClient) -> None:
    client.send(query("COPY pieces FROM STDIN; COPY pieces FROM STDIN"))
    for line in (b"1\n", b"2\n3\n"):
        assert client.frame()[0] == "G"
        client.send(frames.message(frames.COPY_DATA, line) + frames.message(frames.COPY_DONE, b""))
        assert client.frame()[0] == "C"
    assert client.until_ready() == [("Z", b"I")]
    client.send(query("SELECT k FROM pieces"))
    assert kinds(client) == "TDDDCZ"


def test_a_refusal_comes_alone(client: RawClient) -> None:
    client.send(whole("CREATE TABLE first (k int)") + whole("CREATE TABLE second (k int)") + SYNC)
    assert kinds(client) == "12nC" + "12nEZ"
