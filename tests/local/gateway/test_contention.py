"""Sessions in each other's way, through the gateway: who waits, who goes on, and what nobody must see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local import dialect
from pytest_dsql.local.cluster import Cluster
from tests.local.gateway.harness import (
    RawClient,
    RunningGateway,
    ask,
    direct,
    pipeline_results,
    run_gateway,
    wait_until,
)

OC000 = "change conflicts with another transaction (OC000)"
OC001 = "schema has been updated by another transaction (OC001)"


@pytest.fixture(scope="module")
def contested(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    yield from run_gateway(cluster, tmp_path_factory.mktemp("authority"), judge=dialect.judge)


@pytest.fixture
def sessions(contested: RunningGateway) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """Two sessions that know of a table with two rows."""
    with contested.connect() as owner:
        owner.execute("CREATE TABLE way (k int PRIMARY KEY, v int)")
        owner.execute("INSERT INTO way VALUES (1, 10), (2, 20)")
    with contested.connect() as a, contested.connect() as b:
        yield a, b
    with contested.connect() as owner:
        owner.execute("DROP TABLE way")


def told(connection: psycopg.Connection[Any], sql: str, *, extended: bool = False) -> str:
    """The rows of a statement with its command tag, or its error's message."""
    arguments: tuple[Any, ...] = (sql.encode(), []) if extended else (sql.encode(),)
    result = ask(connection.pgconn, "send_query_params" if extended else "send_query", *arguments)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if message is not None:
        return message.decode()
    rows = " ".join((result.get_value(row, 0) or b"").decode() for row in range(result.ntuples))
    return f"{rows} {(result.command_status or b'').decode()}".strip()


@pytest.mark.parametrize("extended", [False, True])
def test_who_is_evicted_goes_on_with_its_own_writes(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]], extended: bool
) -> None:
    a, b = sessions
    told(a, "BEGIN", extended=extended)
    assert told(a, "UPDATE way SET v = v + 1 WHERE k = 1 RETURNING v", extended=extended) == "11 UPDATE 1"
    assert told(b, "UPDATE way SET v = v + 5 WHERE k = 1 RETURNING v", extended=extended) == "15 UPDATE 1"
    assert told(a, "SELECT v FROM way WHERE k = 1", extended=extended) == "11 SELECT 1"
    assert told(a, "UPDATE way SET v = v + 1 WHERE k = 1 RETURNING v", extended=extended) == "12 UPDATE 1"
    assert told(a, "COMMIT", extended=extended) == OC000
    assert told(a, "SELECT v FROM way WHERE k = 1", extended=extended) == "15 SELECT 1"


def test_nothing_of_the_way_it_is_done_shows(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]],
) -> None:
    a, b = sessions
    before = [told(b, f"SHOW {name}") for name in ("lock_timeout", "search_path")]
    told(a, "BEGIN")
    told(a, "UPDATE way SET v = 1 WHERE k = 1")
    told(b, "BEGIN")
    assert told(b, "UPDATE way SET v = 2 WHERE k = 1") == "UPDATE 1"
    assert [told(b, f"SHOW {name}") for name in ("lock_timeout", "search_path")] == before
    assert told(b, "INSERT INTO way VALUES (2, 0)") == 'duplicate key value violates unique constraint "way_pkey"'
    assert told(b, "COMMIT") == "ROLLBACK"
    told(a, "ROLLBACK")


def test_ddl_goes_before_open_transactions(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]],
) -> None:
    a, b = sessions
    took = []
    for number in range(3):
        told(a, "BEGIN")
        assert told(a, "UPDATE way SET v = 1 WHERE k = 1") == "UPDATE 1"
        started = time.monotonic()
        assert told(b, f"ALTER TABLE way ADD COLUMN w{number} int") == "ALTER TABLE"
        took.append(time.monotonic() - started)
        assert told(a, "COMMIT") == OC001
        assert told(b, "SELECT v FROM way WHERE k = 1") == "10 SELECT 1"
    assert min(took) < 1  # whoever waits for another does so each time, not only where the machine is busy


def test_open_ddl_is_in_nobodys_way(sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]]) -> None:
    a, b = sessions
    told(a, "BEGIN")
    assert told(a, "ALTER TABLE way ADD COLUMN w int") == "ALTER TABLE"
    for extended in (False, True):
        assert told(b, "SELECT v FROM way WHERE k = 1", extended=extended) == "10 SELECT 1"
    assert told(a, "SELECT w FROM way WHERE k = 1") == "SELECT 1"
    assert told(a, "COMMIT") == "COMMIT"


def test_a_client_that_dies_leaves_no_lock(contested: RunningGateway, cluster: Cluster, sessions: object) -> None:
    with RawClient(contested).logged_in() as client:
        for sql in (b"BEGIN", b"UPDATE way SET v = 1 WHERE k = 1"):
            client.send(b"Q" + (len(sql) + 5).to_bytes(4, "big") + sql + b"\0")
            client.until_ready()
    locks = "SELECT count(*) FROM pg_locks WHERE relation = 'way'::regclass"
    with direct(cluster) as owner:
        wait_until(lambda: owner.execute(locks).fetchone() == (0,))


def test_rows_that_were_copied_are_copied_again_for_who_was_evicted(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]],
) -> None:
    a, b = sessions
    told(a, "BEGIN")
    with a.cursor() as cursor, cursor.copy("COPY way FROM STDIN") as copy:
        copy.write_row((7, 70))
    told(a, "UPDATE way SET v = 0 WHERE k = 2")
    told(b, "BEGIN")
    assert told(b, "INSERT INTO way VALUES (7, 71)") == "INSERT 0 1"
    assert told(b, "COMMIT") == "COMMIT"
    assert told(a, "SELECT v FROM way WHERE k = 7") == "70 SELECT 1"
    assert told(a, "COMMIT") == OC000


def test_a_pipeline_without_a_transaction_is_one(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]],
) -> None:
    a, b = sessions
    told(a, "BEGIN")
    told(a, "UPDATE way SET v = 1 WHERE k = 2")
    b.pgconn.enter_pipeline_mode()
    for key in (b"1", b"2"):
        b.pgconn.send_query_params(b"UPDATE way SET v = v + 100 WHERE k = $1 RETURNING v", [key])
    b.pgconn.pipeline_sync()
    found = pipeline_results(b.pgconn, 1)
    b.pgconn.exit_pipeline_mode()
    assert [result.get_value(0, 0) for result in found] == [b"110", b"120"]
    assert told(a, "COMMIT") == OC000


def test_another_gateway_of_the_same_cluster_decides_for_itself(cluster: Cluster, tmp_path: Path) -> None:
    """What one event loop has opened is no use in another, before or after its end."""
    for _ in range(2):
        for served in run_gateway(cluster, tmp_path, judge=dialect.judge):
            with served.connect() as owner:
                owner.execute("CREATE TABLE again (k int PRIMARY KEY)")
            with served.connect() as a, served.connect() as b:
                told(a, "BEGIN")
                told(a, "INSERT INTO again VALUES (1)")
                assert told(b, "INSERT INTO again VALUES (1)") == "INSERT 0 1"
                assert told(a, "COMMIT") == OC000
            with served.connect() as owner:
                owner.execute("DROP TABLE again")
