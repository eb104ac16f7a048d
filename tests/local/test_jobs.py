"""Asynchronous jobs of a running engine: when they end, who waits for them, what they leave alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import ClockControl
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.local.postgres import SOCKET_NAME, SUPERUSER
from tests.local.engines import connect
from tests.local.gateway.harness import wait_until

#: Long enough that no job ends by itself while a test runs.
SLOW = {"job_build_s": "600"}
#: What a test moves the clock by to finish a job.
PAST = 600.0

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach(options=EngineOptions().with_settings(SLOW)) as engine:
        yield engine


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A session with a table of three rows."""
    with connect(engine) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
        retried(connection, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 2)")
        yield connection


def retried(connection: Connection, sql: str, *parameters: object) -> psycopg.Cursor[Any]:
    """Execute a statement; again while the catalog has changed."""
    while True:
        try:
            return connection.execute(sql, parameters or None)
        except psycopg.errors.SerializationFailure as error:
            if "OC001" not in str(error):
                raise


def cell(connection: Connection, sql: str, *parameters: object) -> Any:
    row = retried(connection, sql, *parameters).fetchone()
    assert row is not None
    return row[0]


def status(connection: Connection, job: str) -> Any:
    return cell(connection, "SELECT status FROM sys.jobs WHERE job_id = %s", job)


def is_valid(connection: Connection, index: str) -> Any:
    return cell(connection, "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass", index)


def move(engine: Engine, seconds: float) -> None:
    ClockControl(engine, engine.cluster).move(seconds)


def wait(connection: Connection, job: str) -> Any:
    return cell(connection, "CALL sys.wait_for_job(%s)", job)


def test_a_job_goes_through_its_states_as_the_clock_moves(engine: Engine, connection: Connection) -> None:
    job = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
    assert (status(connection, job), is_valid(connection, "i")) == ("submitted", False)
    move(engine, PAST / 2)
    wait_until(lambda: bool(status(connection, job) == "processing"))
    assert not is_valid(connection, "i")
    move(engine, PAST / 2)
    wait_until(lambda: bool(status(connection, job) == "completed"))
    assert is_valid(connection, "i")
    assert wait(connection, job)


def test_whoever_waits_is_told_when_the_job_ends(engine: Engine, connection: Connection) -> None:
    job = cell(connection, "CREATE UNIQUE INDEX ASYNC u ON t (v)")
    answers: list[Any] = []
    with connect(engine) as waiting, connect(engine) as inside:
        inside.execute("BEGIN")
        retried(inside, "SELECT count(*) FROM t")  # its snapshot is older than the job's end

        threads = [threading.Thread(target=lambda c=c: answers.append(wait(c, job))) for c in (waiting, inside)]
        for thread in threads:
            thread.start()
        assert retried(connection, "INSERT INTO t VALUES (4, 4)").rowcount == 1
        assert not answers
        move(engine, PAST)
        for thread in threads:
            thread.join(60)
        inside.execute("ROLLBACK")  # it is too old to commit
    assert answers == [False, False]
    found = "SELECT details FROM sys.jobs WHERE job_id = %s"
    assert cell(connection, found, job) == "found duplicate key(s) while validating index uniqueness"


def test_an_open_transaction_keeps_no_job_from_ending(engine: Engine, connection: Connection) -> None:
    job = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
    with connect(engine) as idle:
        idle.execute("BEGIN")
        retried(idle, "UPDATE t SET v = 7 WHERE k = 1")
        move(engine, PAST)
        assert wait(connection, job)
        idle.execute("ROLLBACK")


def test_nothing_is_submitted_by_what_fails_or_is_rolled_back(connection: Connection) -> None:
    count = "SELECT count(*) FROM sys.jobs"
    before = cell(connection, count)
    with pytest.raises(psycopg.errors.UndefinedColumn):
        retried(connection, "CREATE INDEX ASYNC i ON t (nope)")
    connection.execute("BEGIN")
    retried(connection, "CREATE INDEX ASYNC i ON t (v)")
    connection.execute("ROLLBACK")
    assert cell(connection, count) == before


@pytest.mark.parametrize("drop", ["DROP INDEX i", "DROP TABLE t", "ALTER TABLE t DROP COLUMN v"])
def test_dropping_ends_a_job_at_once(connection: Connection, drop: str) -> None:
    job = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
    retried(connection, drop)
    assert wait(connection, job)
    details = cell(connection, "SELECT details FROM sys.jobs WHERE job_id = %s", job)
    assert details == 'relation "public.i" does not exist'


def test_the_runner_outlives_its_connection(engine: Engine, connection: Connection) -> None:
    done = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
    retried(connection, "DROP INDEX i")
    assert wait(connection, done)
    job = cell(connection, "CREATE INDEX ASYNC j ON t (v)")
    (socket,) = engine.control.parent.rglob(SOCKET_NAME)
    with psycopg.connect(host=str(socket.parent), user=SUPERUSER, dbname="postgres") as superuser:
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'jobs'"
        assert cell(superuser, ended) == 1
    move(engine, PAST)
    assert wait(connection, job)
    assert wait(connection, done)


def test_finished_jobs_are_forgotten_after_half_an_hour(engine: Engine, connection: Connection) -> None:
    job = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
    move(engine, PAST)
    assert wait(connection, job)
    move(engine, 1_800)
    wait_until(lambda: bool(cell(connection, "SELECT count(*) FROM sys.jobs WHERE job_id = %s", job) == 0))


def test_jobs_go_on_in_the_next_engine(tmp_path: Path) -> None:
    options = EngineOptions(data=tmp_path / "data")
    with (
        Engine.start_or_attach(options=options.with_settings(SLOW)) as engine,
        connect(engine) as connection,
    ):
        connection.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
        job = cell(connection, "CREATE INDEX ASYNC i ON t (v)")
        done = cell(connection, "CREATE INDEX ASYNC j ON t (v)")
        retried(connection, "DROP INDEX j")
        assert wait(connection, done)
    with (
        Engine.start_or_attach(options=options.with_settings({"job_build_s": "0"})) as engine,
        connect(engine) as connection,
    ):
        assert wait(connection, job)
        assert is_valid(connection, "i")
        assert wait(connection, done)
