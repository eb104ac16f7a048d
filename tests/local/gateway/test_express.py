"""What goes the shortest way through the gateway, what doesn't, and that nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local import dialect
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.faults.fault import Fault
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.express import Express
from tests.local.gateway.harness import RawClient, RunningGateway, ask, direct, run_gateway

SELECT = "SELECT v FROM short WHERE k = $1"
UPDATE = "UPDATE short SET v = v + 1 WHERE k = $1"


@pytest.fixture(scope="module")
def short(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with direct(cluster, "admin") as owner:
        owner.execute("CREATE TABLE short (k int PRIMARY KEY, v int)")
        owner.execute("INSERT INTO short VALUES (1, 10), (2, 20)")
    cluster.catalog_changed()
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"), judge=dialect.judge)
    with direct(cluster, "admin") as owner:
        owner.execute("DROP TABLE short")
    cluster.catalog_changed()


class Counter:
    """What was sent the shortest way, and what was answered on it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken = self.answered = 0
        takes, answers = Express.takes, Express.answers

        def counting_takes(express: Express, data: bytes) -> bool:
            taken = takes(express, data)
            self.taken += taken
            return taken

        def counting_answers(express: Express, data: bytes) -> bool:
            answered = answers(express, data)
            self.answered += answered
            return answered

        patch.setattr(Express, "takes", counting_takes)
        patch.setattr(Express, "answers", counting_answers)

    def both(self) -> tuple[int, int]:
        """The counts since the last time."""
        found = self.taken, self.answered
        self.taken = self.answered = 0
        return found


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


@pytest.fixture
def client(short: RunningGateway) -> Iterator[pq.abc.PGconn]:
    """A session that has prepared a SELECT and an UPDATE, and has read once."""
    with short.connect() as connection:
        pgconn = connection.pgconn
        for name, sql in ((b"read", SELECT), (b"write", UPDATE)):
            assert ask(pgconn, "send_prepare", name, sql.encode()).status == pq.ExecStatus.COMMAND_OK
        assert told(pgconn, b"write", b"3") == "UPDATE 0"  # the adjudicator has read the catalog
        yield pgconn


def told(pgconn: pq.abc.PGconn, name: bytes, *parameters: bytes) -> str:
    """The first value or the command tag of a prepared statement, or its error."""
    return _told(ask(pgconn, "send_query_prepared", name, parameters))


def query(pgconn: pq.abc.PGconn, sql: str) -> str:
    return _told(ask(pgconn, "send_query", sql.encode()))


def _told(result: pq.abc.PGresult) -> str:
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if message is not None:
        return message.decode()
    if result.ntuples:
        return (result.get_value(0, 0) or b"").decode()
    return (result.command_status or b"").decode()


def test_a_select_that_stands_alone_is_taken(client: pq.abc.PGconn, counter: Counter) -> None:
    assert told(client, b"read", b"2") == "20"
    assert counter.both() == (1, 1)
    for expected in ((0, 0), (1, 1)):  # a text that was not seen before is judged first
        assert query(client, "SELECT v FROM short WHERE k = 2") == "20"
        assert counter.both() == expected


def test_a_write_that_stands_alone_is_taken(client: pq.abc.PGconn, counter: Counter) -> None:
    assert told(client, b"write", b"2") == "UPDATE 1"
    assert counter.both() == (1, 1)
    assert query(client, "UPDATE short SET v = 20 WHERE k = 2") == "UPDATE 1"


def test_reads_and_writes_of_a_transaction_are_taken(client: pq.abc.PGconn, counter: Counter) -> None:
    assert query(client, "BEGIN") == "BEGIN"
    counter.both()
    assert told(client, b"write", b"1") == "UPDATE 1"
    assert told(client, b"read", b"1") == "11"
    assert counter.both() == (2, 2)
    assert query(client, "ROLLBACK") == "ROLLBACK"
    assert told(client, b"read", b"1") == "10"


def test_a_write_that_was_taken_can_be_done_again(
    short: RunningGateway, client: pq.abc.PGconn, counter: Counter
) -> None:
    """A rival has it moved to the sandbox, where what it has written must be there, and wins."""
    query(client, "BEGIN")
    assert told(client, b"write", b"1") == "UPDATE 1"
    assert counter.both() == (1, 1)
    with short.connect() as rival:
        assert rival.execute("UPDATE short SET v = v WHERE k = 1").rowcount == 1
    assert told(client, b"read", b"1") == "11"
    assert query(client, "COMMIT") == "change conflicts with another transaction (OC000)"
    assert told(client, b"read", b"1") == "10"


def test_a_write_that_meets_a_rival_leaves_the_way(
    short: RunningGateway, client: pq.abc.PGconn, counter: Counter
) -> None:
    with short.connect() as rival:
        rival.execute("BEGIN")
        rival.execute("UPDATE short SET v = 100 WHERE k = 1")
        counter.both()
        assert told(client, b"write", b"1") == "UPDATE 1"  # it commits before the rival
        assert counter.both() == (1, 0)
        with pytest.raises(psycopg.errors.SerializationFailure):
            rival.execute("COMMIT")
    assert told(client, b"read", b"1") == "11"
    query(client, "UPDATE short SET v = 10 WHERE k = 1")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_an_error_leaves_the_way(client: pq.abc.PGconn, counter: Counter, begin: str) -> None:
    ask(client, "send_prepare", b"divide", b"SELECT 1 / $1::int")
    if begin:
        query(client, begin)
    counter.both()
    assert told(client, b"divide", b"0") == "division by zero"
    assert counter.both() == (1, 0)
    if begin:
        assert "current transaction is aborted" in told(client, b"read", b"1")
        assert counter.both() == (0, 0)
        assert query(client, "COMMIT") == "ROLLBACK"
    assert told(client, b"divide", b"1") == "1"
    assert told(client, b"divide", b"1") == "1"
    assert counter.both()[0] >= 1


def test_an_answer_in_many_pieces_leaves_the_way(client: pq.abc.PGconn, counter: Counter) -> None:
    sql = "SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g"
    ask(client, "send_prepare", b"many", sql.encode())
    counter.both()
    assert ask(client, "send_query_prepared", b"many", ()).ntuples == 20_000
    assert counter.both() == (1, 0)
    assert told(client, b"read", b"1") == "10"


def test_what_is_read_is_counted(short: RunningGateway, client: pq.abc.PGconn, counter: Counter) -> None:
    meter = short.cluster.dpu
    meter.reset()
    for _ in range(3):
        told(client, b"read", b"1")
    assert counter.both() == (3, 3)
    assert asyncio.run(meter.totals()).transactions == 3
    ask(client, "send_query", b"SELECT g FROM generate_series(1, 20000) g, short")
    told(client, b"write", b"2")
    assert asyncio.run(meter.totals()).writing_transactions == 1
    query(client, "UPDATE short SET v = 20 WHERE k = 2")


def test_answers_of_several_forms_are_told_apart(
    short: RunningGateway, client: pq.abc.PGconn, counter: Counter
) -> None:
    """What an answer begins and ends with is remembered for the next one, which may be another."""
    ask(client, "send_prepare", b"up to", b"SELECT k, v FROM short WHERE k <= $1 ORDER BY k")
    told(client, b"up to", b"2")
    meter = short.cluster.dpu
    meter.reset()
    counter.both()
    for _ in range(2):
        for up_to, rows in ((b"2", ["1", "2"]), (b"1", ["1"]), (b"0", [])):
            result = ask(client, "send_query_prepared", b"up to", (up_to,))
            assert [(result.get_value(row, 0) or b"").decode() for row in range(result.ntuples)] == rows
            assert result.command_status == b"SELECT %d" % len(rows)
            assert told(client, b"read", b"2") == "20"
    assert counter.both() == (12, 12)
    counted = {answer[1]: count for answer, count in meter._reads.items() if answer[0].sql != SELECT}
    assert counted == {b"SELECT 2": 2, b"SELECT 1": 2, b"SELECT 0": 2}


def test_whoever_minds_is_asked(short: RunningGateway, client: pq.abc.PGconn, counter: Counter) -> None:
    told(client, b"read", b"1")
    cluster = short.cluster
    label = short.call(lambda: cluster.faults.add(Fault(what="unavailable", on=("select",))))
    try:
        counter.both()
        assert told(client, b"read", b"1") == "server unavailable"
        assert counter.both() == (0, 0)
    finally:
        short.call(lambda: cluster.faults.remove(label))
    assert told(client, b"read", b"1") == "10"
    short.call(cluster.catalog_changed)
    counter.both()
    assert told(client, b"read", b"1") == "schema has been updated by another transaction (OC001)"
    assert counter.both() == (0, 0)


def test_a_transaction_that_is_too_old_is_refused(short: RunningGateway, client: pq.abc.PGconn) -> None:
    query(client, "BEGIN")
    assert told(client, b"read", b"1") == "10"
    short.call(lambda: short.cluster.clock.move(301))
    try:
        assert told(client, b"write", b"1") == "transaction age limit of 300s exceeded"
    finally:
        short.call(short.cluster.clock.reset)
        query(client, "ROLLBACK")


def test_a_message_that_is_too_long_is_not_taken(short: RunningGateway) -> None:
    limits = short.cluster.limits
    with RawClient(short).logged_in() as client:
        for _ in range(2):
            client.send(frames.message(frames.QUERY, b"SELECT 1 -- " + b"x" * 50 + b"\0"))
            assert [kind for kind, _ in client.until_ready()] == ["T", "D", "C", "Z"]
        short.cluster.limits = replace(limits, message_bytes=30)
        try:
            client.send(frames.message(frames.QUERY, b"SELECT 1 -- " + b"x" * 50 + b"\0"))
            assert client.expect_end() == b""
        finally:
            short.cluster.limits = limits


def test_statements_that_come_too_early_wait(short: RunningGateway, client: pq.abc.PGconn, counter: Counter) -> None:
    """The second comes while the first is under way, in one piece with it or not."""
    with RawClient(short).logged_in() as raw:
        one = frames.message(frames.QUERY, b"SELECT v FROM short WHERE k = 1\0")
        for _ in range(2):
            raw.send(one)
            raw.until_ready()
        counter.both()
        for _ in range(20):
            raw.send(one)
            assert [kind for kind, _ in raw.until_ready()] == ["T", "D", "C", "Z"]
            raw.send(one)
            raw.send(one)
            raw.send(one + one)
            for _ in range(4):
                assert [kind for kind, _ in raw.until_ready()] == ["T", "D", "C", "Z"]
    assert counter.both()[0] >= 20


def test_a_portal_that_was_run_in_a_transaction_is_done(short: RunningGateway) -> None:
    """As in PostgreSQL, another Execute of it has nothing more to give."""
    with RawClient(short).logged_in() as raw:
        raw.send(frames.message(frames.PARSE, b"p\0SELECT v FROM short WHERE k = 1\0\0\0") + frames.SYNC_MESSAGE)
        raw.until_ready()
        raw.send(frames.message(frames.QUERY, b"BEGIN\0"))
        raw.until_ready()
        bind = frames.message(frames.BIND, b"\0p\0" + bytes(6))
        execute = frames.message(frames.EXECUTE, b"\0" + bytes(4)) + frames.SYNC_MESSAGE
        raw.send(bind + execute)
        assert [kind for kind, _ in raw.until_ready()] == ["2", "D", "C", "Z"]
        raw.send(execute)
        assert raw.until_ready()[0] == ("C", b"SELECT 0\0")


def test_a_session_may_end_in_the_middle(short: RunningGateway) -> None:
    with RawClient(short).logged_in() as raw:
        for _ in range(2):
            raw.send(frames.message(frames.QUERY, b"SELECT 1\0"))
            raw.until_ready()
        raw.send(frames.message(frames.QUERY, b"SELECT 1\0"))
    short.wait_sessions(0)


def test_a_bind_that_names_no_statement_is_not_taken(short: RunningGateway) -> None:
    """Not even where what comes behind it could be read as a name."""
    with RawClient(short).logged_in() as raw:
        raw.send(frames.message(frames.PARSE, b"E\0UPDATE short SET v = v\0\0\0") + frames.SYNC_MESSAGE)
        raw.until_ready()
        execute = frames.message(frames.EXECUTE, b"\0" + bytes(4)) + frames.SYNC_MESSAGE
        for _ in range(2):
            raw.send(frames.message(frames.BIND, b"\0E\0" + bytes(6)) + execute)
            assert [kind for kind, _ in raw.until_ready()] == ["2", "C", "Z"]
        raw.send(frames.message(frames.BIND, b"\0") + execute)
        assert raw.until_ready()[0][0] == "E"
        raw.send(frames.message(frames.QUERY, b"SELECT 1\0"))
        assert [kind for kind, _ in raw.until_ready()] == ["T", "D", "C", "Z"]


ONE = frames.message(frames.QUERY, b"SELECT v FROM short WHERE k = 1\0")


class Nobody:
    """PostgreSQL's side of a session, where nothing is sent to."""

    def write(self, data: bytes) -> None: ...


def played(short: RunningGateway, *scenes: tuple[bytes, Sequence[bytes]]) -> bool:
    """Have the only session send each first part of a scene on, and get the others; tell whether it waits for more."""
    (session,) = short.gateway._sessions
    backend = session.backend

    def play() -> bool:
        transport, backend.transport = backend.transport, cast(asyncio.Transport, Nobody())
        try:
            for sent, chunks in scenes:
                if sent:
                    assert session.express.clear
                    assert session.express.takes(sent)
                for chunk in chunks:
                    backend.data_received(chunk)
            return session.express.under_way
        finally:
            backend.transport = transport

    return bool(short.call(play))


def answer_to_one(raw: RawClient) -> bytes:
    """What PostgreSQL answers to `ONE`, which goes the shortest way from now on."""
    for _ in range(2):
        raw.send(ONE)
        found = raw.until_ready()
    return b"".join(frames.message(ord(kind), payload) for kind, payload in found)


def test_an_answer_whose_beginning_came_in_two_pieces_is_known_the_next_time(
    short: RunningGateway, counter: Counter
) -> None:
    with RawClient(short).logged_in() as raw:
        answer = answer_to_one(raw)
        counter.both()
        assert not played(short, (ONE, (answer[:20], answer[20:])), (ONE, (answer,)))
        assert counter.both() == (2, 1)
        for _ in range(2):
            assert [kind for kind, _ in raw.until_ready()] == ["T", "D", "C", "Z"]


def test_an_answer_behind_the_rest_of_a_notice_leaves_the_way(short: RunningGateway) -> None:
    notice = frames.report(frames.NOTICE_RESPONSE, {"S": b"WARNING", "C": b"01000", "M": b"nobody asked"})
    with RawClient(short).logged_in() as raw:
        answer = answer_to_one(raw)
        assert not played(short, (b"", (notice[:9],)), (ONE, (notice[9:] + answer,)))
        assert [kind for kind, _ in raw.until_ready()] == ["N", "T", "D", "C", "Z"]
        raw.send(ONE)
        assert [kind for kind, _ in raw.until_ready()] == ["T", "D", "C", "Z"]
