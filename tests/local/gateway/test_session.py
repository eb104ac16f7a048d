"""What passes between client and PostgreSQL: refusals, command tags, pipelines, COPY, conflicts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect.judgement import Judgement
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.judging import LONG_MESSAGE
from tests.local.gateway.harness import (
    RawClient,
    RunningGateway,
    ask,
    few_rules,
    next_result,
    pipeline_results,
    run_gateway,
)

Connection = psycopg.Connection[Any]
INDEX = "CREATE INDEX ASYNC ON t (a)"


def simple(connection: Connection, sql: str) -> list[pq.abc.PGresult]:
    """Every result of a simple query."""
    connection.pgconn.send_query(sql.encode())
    results = []
    while result := next_result(connection.pgconn):
        results.append(result)
    return results


def tags(results: list[pq.abc.PGresult]) -> list[str]:
    """Command tags, SQLSTATEs of errors, nothing for what was skipped."""
    sqlstate = pq.DiagnosticField.SQLSTATE
    return [(result.command_status or result.error_field(sqlstate) or b"").decode() for result in results]


def test_a_refusal_carries_every_field(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        connection.execute("LOCK TABLE t")
    diagnosis = refused.value.diag
    assert (diagnosis.message_primary, diagnosis.message_detail, diagnosis.message_hint) == (
        "unsupported statement: Lock",
        "as on DSQL",
        "do without",
    )
    assert diagnosis.severity == "ERROR"


def test_a_refusal_is_the_same_in_the_extended_protocol(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="unsupported statement: Lock"):
        connection.execute("LOCK TABLE t", prepare=True)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_refusal_aborts_the_transaction(connection: Connection) -> None:
    assert tags(simple(connection, "BEGIN")) == ["BEGIN"]
    assert tags(simple(connection, "LOCK TABLE t")) == ["0A000"]
    assert tags(simple(connection, "SELECT 1")) == ["25P02"]
    assert tags(simple(connection, "COMMIT")) == ["ROLLBACK"]


def test_an_aborted_transaction_goes_before_a_refusal(connection: Connection) -> None:
    simple(connection, "BEGIN")
    simple(connection, "SELECT 1/0")
    assert tags(simple(connection, "LOCK TABLE t")) == ["25P02"]
    simple(connection, "ROLLBACK")


def test_a_refusal_in_a_query_string_undoes_what_stands_before_it(connection: Connection) -> None:
    simple(connection, "CREATE TABLE undone (a int)")
    results = simple(connection, "INSERT INTO undone VALUES (1); LOCK TABLE undone; INSERT INTO undone VALUES (2)")
    assert tags(results) == ["INSERT 0 1", "0A000"]
    assert connection.execute("SELECT count(*) FROM undone").fetchone() == (0,)
    simple(connection, "DROP TABLE undone")


def test_a_refusal_in_a_pipeline_skips_up_to_the_sync(connection: Connection) -> None:
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    for sql in (b"SELECT 1", b"LOCK TABLE t", b"SELECT 2"):
        pgconn.send_query_params(sql, [])
    pgconn.pipeline_sync()
    pgconn.send_query_params(b"SELECT 3", [])
    pgconn.pipeline_sync()
    found = pipeline_results(pgconn, 2)
    pgconn.exit_pipeline_mode()
    assert tags(found) == ["SELECT 1", "0A000", "", "SELECT 1"]


def test_a_fault_of_the_judge_is_an_error_of_that_statement(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.InternalError_, match="could not judge"):
        connection.execute("BROKEN")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_command_tag_is_answered_in_a_query_string(connection: Connection) -> None:
    results = simple(connection, f"SELECT 1; {INDEX}; SELECT 2; {INDEX}")
    assert tags(results) == ["SELECT 1", "CREATE INDEX", "SELECT 1", "CREATE INDEX"]
    assert [result.fname(0) for result in results[1::2]] == [b"job_id"] * 2
    assert results[1].get_value(0, 0) == b"abc"


def test_a_command_tag_is_answered_whenever_a_prepared_statement_runs(connection: Connection) -> None:
    pgconn = connection.pgconn
    ask(pgconn, "send_prepare", b"indexing", INDEX.encode())
    for _ in range(3):
        assert tags([ask(pgconn, "send_query_prepared", b"indexing", [])]) == ["CREATE INDEX"]
        assert tags([ask(connection.pgconn, "send_query_params", b"SELECT 1", [])]) == ["SELECT 1"]
    assert ask(pgconn, "send_describe_prepared", b"indexing").fname(0) == b"job_id"


def test_command_tags_in_a_pipeline_belong_to_their_statements(connection: Connection) -> None:
    pgconn = connection.pgconn
    ask(pgconn, "send_prepare", b"indexing", INDEX.encode())
    pgconn.enter_pipeline_mode()
    for round_ in range(3):
        pgconn.send_query_params(b"SELECT 1", [])
        pgconn.send_query_prepared(b"indexing", [])
        if round_ == 1:
            pgconn.pipeline_sync()
        pgconn.send_query_params(INDEX.encode(), [])
        pgconn.send_query_params(b"SELECT 2", [])
    pgconn.pipeline_sync()
    found = pipeline_results(pgconn, 2)
    pgconn.exit_pipeline_mode()
    assert tags(found) == ["SELECT 1", "CREATE INDEX", "CREATE INDEX", "SELECT 1"] * 3


def test_a_command_tag_after_an_error_in_the_same_pipeline_is_right(connection: Connection) -> None:
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(b"SELECT 1/0", [])
    pgconn.send_query_params(INDEX.encode(), [])
    pgconn.pipeline_sync()
    pgconn.send_query_params(b"SELECT 1", [])
    pgconn.send_query_params(INDEX.encode(), [])
    pgconn.pipeline_sync()
    found = pipeline_results(pgconn, 2)
    pgconn.exit_pipeline_mode()
    assert tags(found) == ["22012", "", "SELECT 1", "CREATE INDEX"]


def test_an_empty_query_is_answered(connection: Connection) -> None:
    assert simple(connection, "")[0].status == pq.ExecStatus.EMPTY_QUERY
    assert ask(connection.pgconn, "send_query_params", b"", []).status == pq.ExecStatus.EMPTY_QUERY


def test_several_statements_in_one_parse_get_postgresqls_answer(connection: Connection) -> None:
    result = ask(connection.pgconn, "send_query_params", b"SELECT 1; SELECT 2", [])
    assert tags([result]) == ["42601"]


def test_copy_in_and_out(connection: Connection) -> None:
    simple(connection, "CREATE TABLE copied (a int, b text)")
    try:
        rows = [(number, "x" * (number % 300)) for number in range(3_000)]
        with connection.cursor() as cursor:
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            with cursor.copy("COPY (SELECT * FROM copied ORDER BY a) TO STDOUT") as copy:
                copy.set_types(["int4", "text"])
                assert list(copy.rows()) == rows
    finally:
        simple(connection, "DROP TABLE copied")


def test_a_copy_that_is_taken_back_at_once_is_answered(connection: Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS thawed (k int)")
    # PostgreSQL asks for the data, and says at once that it won't have them.
    with (
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot perform COPY FREEZE"),
        connection.cursor().copy("COPY thawed FROM STDIN (FREEZE)") as copy,
    ):
        copy.write("1\n")
    assert connection.execute("SELECT count(*) FROM thawed").fetchone() == (0,)


@pytest.mark.parametrize("data", [b"1\n2\n", b"1\nno number\n"])
def test_command_tags_are_right_after_a_copy_in_the_extended_protocol(connection: Connection, data: bytes) -> None:
    simple(connection, "CREATE TABLE copied (a int)")
    try:
        for _ in range(3):
            # libpq sends a Sync at once, which PostgreSQL ignores while it copies.
            connection.pgconn.send_query_params(b"COPY copied FROM STDIN", [])
            started = next_result(connection.pgconn)
            assert started is not None
            assert started.status == pq.ExecStatus.COPY_IN
            connection.pgconn.put_copy_data(data)
            connection.pgconn.put_copy_end()
            while next_result(connection.pgconn):
                pass
            assert tags([ask(connection.pgconn, "send_query_params", INDEX.encode(), [])]) == ["CREATE INDEX"]
            assert tags([ask(connection.pgconn, "send_query_params", b"SELECT 1", [])]) == ["SELECT 1"]
    finally:
        simple(connection, "DROP TABLE copied")


def test_a_lost_update_is_reported_as_dsql_reports_it(served: RunningGateway, connection: Connection) -> None:
    simple(connection, "CREATE TABLE contested (a int)")
    simple(connection, "INSERT INTO contested VALUES (1)")
    try:
        simple(connection, "BEGIN")
        simple(connection, "SELECT * FROM contested")
        with served.connect() as rival:
            simple(rival, "UPDATE contested SET a = 2")
        with pytest.raises(psycopg.errors.SerializationFailure) as conflict:
            connection.execute("UPDATE contested SET a = 3")
        assert conflict.value.diag.message_primary == "change conflicts with another transaction (OC000)"
        simple(connection, "ROLLBACK")
    finally:
        simple(connection, "DROP TABLE contested")


def test_large_results_arrive_whole(connection: Connection) -> None:
    rows = connection.execute("SELECT n, repeat('x', n % 3000) FROM generate_series(1, 20000) AS n").fetchall()
    assert rows == [(number, "x" * (number % 3000)) for number in range(1, 20_001)]


def test_a_value_of_eight_mebibytes_travels_both_ways(connection: Connection) -> None:
    value = "x" * (8 * 1024 * 1024)
    assert connection.execute("SELECT %s::text", [value]).fetchone() == (value,)


def test_a_message_over_ten_mebibytes_closes_the_connection(connection: Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT %s::text", ["x" * (10 * 1024 * 1024 + 1)])


def test_other_client_encodings_come_through(served: RunningGateway) -> None:
    with served.connect(client_encoding="latin1") as connection:
        assert simple(connection, "SHOW client_encoding")[0].get_value(0, 0) == b"LATIN1"
        results = [
            ask(connection.pgconn, "send_query", b"SELECT '\xe9', 1"),
            ask(connection.pgconn, "send_query_params", b"SELECT '\xe9', 2", []),
        ]
        assert [result.get_value(0, 0) for result in results] == [b"\xe9", b"\xe9"]


def test_the_function_call_protocol_is_refused(served: RunningGateway) -> None:
    with RawClient(served).logged_in() as client:
        client.send(frames.message(frames.FUNCTION_CALL, b"\0\0\0\1" + b"\0\0" + b"\0\0" + b"\0\0"))
        assert [kind for kind, _ in client.until_ready()] == ["E", "Z"]


def test_frames_may_come_in_any_pieces(served: RunningGateway) -> None:
    sent = b"".join(
        [
            frames.message(frames.QUERY, b"SELECT 1; CREATE INDEX ASYNC; LOCK t\0"),
            frames.message(frames.PARSE, b"s\0CREATE INDEX ASYNC\0\0\0"),
            frames.message(frames.BIND, b"\0s\0\0\0\0\0\0\0"),
            frames.message(frames.EXECUTE, b"\0\0\0\0\0"),
            frames.message(frames.SYNC, b""),
        ]
    )
    with RawClient(served).logged_in() as client:
        for piece in (1, 2, 3, 7, len(sent)):
            for start in range(0, len(sent), piece):
                client.send(sent[start : start + piece])
            answers = client.until_ready() + client.until_ready()
            assert [kind for kind, _ in answers] == list("TDCTDCEZ12DCZ")
            assert [payload for kind, payload in answers if kind == "C"] == [
                b"SELECT 1\0",
                b"CREATE INDEX\0",
                b"CREATE INDEX\0",
            ]
            client.send(frames.message(frames.CLOSE, b"Ss\0") + frames.message(frames.SYNC, b""))
            assert [kind for kind, _ in client.until_ready()] == ["3", "Z"]


@pytest.mark.parametrize("length", [b"\0\0\0\3", b"\x7f\xff\xff\xff"])
def test_a_frame_of_impossible_length_ends_only_its_own_connection(served: RunningGateway, length: bytes) -> None:
    with RawClient(served).logged_in() as client:
        client.send(b"Q" + length)
        client.expect_end()
    with served.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_unknown_message_is_answered_by_postgresql(served: RunningGateway) -> None:
    with RawClient(served).logged_in() as client:
        client.send(frames.message(ord("?"), b""))
        assert b"invalid frontend message type" in client.expect_end()


LONG_TEXT = "x" * LONG_MESSAGE


class SlowJudge:
    """Judges a long text once somebody else was served."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, sql: str, rules: date) -> Judgement:
        if len(sql) >= LONG_MESSAGE:
            self.asked.set()
            assert self.go_on.wait(60), "nobody was served meanwhile"
        return few_rules(sql, rules)


@pytest.fixture
def slow() -> SlowJudge:
    return SlowJudge()


@pytest.fixture
def slowly_judging(cluster: Cluster, tmp_path: Path, slow: SlowJudge) -> Iterator[RunningGateway]:
    yield from run_gateway(cluster, tmp_path, judge=slow)


def test_others_are_served_while_a_long_text_is_judged(slowly_judging: RunningGateway, slow: SlowJudge) -> None:
    with slowly_judging.connect() as long, slowly_judging.connect() as other:
        long.pgconn.send_query(f"SELECT length('{LONG_TEXT}')".encode())
        assert slow.asked.wait(60)
        assert tags(simple(other, "SELECT 1")) == ["SELECT 1"]
        slow.go_on.set()
        result = next_result(long.pgconn)
        assert result is not None
        assert result.get_value(0, 0) == str(LONG_MESSAGE).encode()
        assert next_result(long.pgconn) is None


def test_what_follows_a_long_text_waits_for_it(slowly_judging: RunningGateway, slow: SlowJudge) -> None:
    long = f"SELECT length('{LONG_TEXT}')".encode()
    parse = frames.message(frames.PARSE, b"\0" + long + b"\0\0\0")
    bind = frames.message(frames.BIND, b"\0\0\0\0\0\0\0\0")
    execute = frames.message(frames.EXECUTE, b"\0\0\0\0\0")
    sync = frames.message(frames.SYNC, b"")
    refused = frames.message(frames.QUERY, b"SELECT '" + LONG_TEXT.encode() + b"'; LOCK t\0")
    with RawClient(slowly_judging) as client:
        client.logged_in()
        client.send(parse + bind + execute + sync + refused + frames.message(frames.QUERY, b"SELECT 7\0"))
        assert slow.asked.wait(60)
        client.send(frames.message(frames.QUERY, b"SELECT 8\0"))
        slow.go_on.set()
        found = [client.until_ready() for _ in range(4)]
    assert [[kind for kind, _ in group] for group in found] == [
        list("12DCZ"),
        list("TDCEZ"),
        list("TDCZ"),
        list("TDCZ"),
    ]
    assert [group[1][1][-1:] for group in found[2:]] == [b"7", b"8"]


def test_a_client_may_go_while_its_text_is_judged(slowly_judging: RunningGateway, slow: SlowJudge) -> None:
    with RawClient(slowly_judging) as client:
        client.logged_in()
        client.send(frames.message(frames.QUERY, f"SELECT '{LONG_TEXT}'".encode() + b"\0"))
        assert slow.asked.wait(60)
    slow.go_on.set()
    slowly_judging.wait_sessions(0)


def test_a_named_statement_can_be_a_sessions_first(served: RunningGateway) -> None:
    with served.connect() as connection:
        for number in (1, 2):
            row = connection.execute(f"SELECT {number}".encode(), prepare=True).fetchone()
            assert row == (number,)
