"""What comes after an error and before the Sync is ignored, whatever failed and whatever comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsql.local import dialect
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from tests.local.gateway.fuzzing.streams import SYNC, bind, describe, execute, parse, query
from tests.local.gateway.harness import RawClient, RunningGateway, run_gateway

FAILING = [
    describe("P"),
    bind(statement="nobody"),
    parse("SELEC 1"),
    execute("nobody"),
    frames.message(frames.FLUSH, b"is empty"),
]
IGNORED = [query("SELECT 1"), frames.message(frames.FUNCTION_CALL, b"abc"), parse("SELECT 1"), execute()]


@pytest.mark.parametrize("failing", FAILING, ids=["Describe", "Bind", "Parse", "Execute", "Flush"])
@pytest.mark.parametrize("ignored", IGNORED, ids=["Query", "FunctionCall", "Parse", "Execute"])
def test_an_error_is_told_once_up_to_the_sync(served: RunningGateway, failing: bytes, ignored: bytes) -> None:
    with RawClient(served) as client:
        client.logged_in()
        client.send(failing + ignored + SYNC + query("SELECT 'after'"))
        assert [kind for kind, _ in client.until_ready()] == ["E", "Z"]
        assert [kind for kind, _ in client.until_ready()] == ["T", "D", "C", "Z"]


def test_a_portal_of_begin_is_done_once_it_was_run(cluster: Cluster, tmp_path: Path) -> None:
    """As in PostgreSQL, also where it takes over a transaction that is open already."""
    for served in run_gateway(cluster, tmp_path, judge=dialect.judge):
        with RawClient(served).logged_in() as client:
            client.send(query("CREATE TABLE begun (k int)"))
            client.until_ready()
            client.send(
                parse("INSERT INTO begun VALUES (1)") + bind() + execute() + parse("BEGIN") + bind() + execute() + SYNC
            )
            assert [kind for kind, _ in client.until_ready()] == ["1", "2", "C", "1", "2", "C", "Z"]
            client.send(execute() + SYNC)
            assert client.error()["M"] == 'portal "" cannot be run'
            assert client.until_ready() == [("Z", b"E")]
            client.send(query("ROLLBACK") + query("DROP TABLE begun"))
            client.until_ready()
            client.until_ready()


@pytest.mark.parametrize("wrong", [query("SELECT 1"), parse("SELECT 1"), bind()], ids=["Query", "Parse", "Bind"])
def test_a_message_that_can_not_be_part_of_a_copy_ends_the_session(served: RunningGateway, wrong: bytes) -> None:
    with RawClient(served).logged_in() as client:
        client.send(query("CREATE TABLE copied (k int)"))
        client.until_ready()
        client.send(query("COPY copied FROM STDIN") + frames.message(frames.COPY_DATA, b"1\n") + wrong)
        assert client.frame()[0] == "G"
        error = client.error()
        assert (error["C"], error["M"]) == ("08P01", f"unexpected message type 0x{wrong[0]:02X} during COPY from stdin")
        assert client.error()["M"] == "terminating connection because protocol synchronization was lost"
        assert client.expect_end() == b""
    with served.connect() as connection:
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (0,)
        connection.execute("DROP TABLE copied")


def test_what_comes_behind_a_copy_that_has_failed_is_judged(served: RunningGateway) -> None:
    """PostgreSQL gives a COPY up as soon as its data is wrong, and whatever comes then is a message of its own."""
    with RawClient(served).logged_in() as client:
        client.send(query("CREATE TABLE wrong (k int)"))
        client.until_ready()
        data = frames.message(frames.COPY_DATA, b"no number\n")
        client.send(query("COPY wrong FROM STDIN") + data + query("LOCK TABLE wrong") + query("DROP TABLE wrong"))
        assert client.frame()[0] == "G"
        assert client.error()["C"] == "22P02"
        assert client.until_ready() == [("Z", b"I")]
        assert client.error()["M"] == "unsupported statement: Lock"
        assert [kind for kind, _ in client.until_ready()] == ["Z"]
        assert [kind for kind, _ in client.until_ready()] == ["C", "Z"]


def test_the_unnamed_statement_is_there_after_a_copy(served: RunningGateway) -> None:
    with RawClient(served).logged_in() as client:
        client.send(query("CREATE TABLE again (k int)"))
        client.until_ready()
        client.send(parse("COPY again FROM STDIN") + SYNC)
        client.until_ready()
        for data, answer in ((b"1\n", "C"), (b"no number\n", "E"), (b"1\n", "C")):
            client.send(bind() + execute() + frames.message(frames.COPY_DATA, data))
            client.send(frames.message(frames.COPY_DONE, b"") + SYNC)
            assert [kind for kind, _ in client.until_ready()] == ["2", "G", answer, "Z"]
        client.send(query("DROP TABLE again"))
        client.until_ready()
