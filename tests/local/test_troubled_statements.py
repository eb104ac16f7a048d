"""Statements under latency and faults, on a real engine. Times are only ever asked to be at least so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.faults.fault import Fault
from tests.local.engines import connect

#: The timer's grain, and what a clock of the client's may lose. Seconds.
GRAIN_S = 0.003


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        with connect(engine) as connection:
            connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)")
            connection.execute("CREATE TABLE others (id int PRIMARY KEY)")
        yield engine


@pytest.fixture
def controls(engine: Engine) -> Iterator[LocalControls]:
    controls = LocalControls(engine, engine.cluster)
    with connect(engine) as connection:
        connection.execute("DELETE FROM accounts")
        connection.execute("INSERT INTO accounts SELECT i, 100 FROM generate_series(1, 5) AS i")
    yield controls
    controls.reset()


@pytest.fixture
def connection(controls: LocalControls) -> Iterator[psycopg.Connection[Any]]:
    with connect(controls.engine) as connection:
        yield connection


def profile(directory: Path, text: str) -> str:
    file = directory / "profile.toml"
    file.write_text(text)
    return str(file)


def took(connection: psycopg.Connection[Any], *statements: str) -> float:
    began = time.monotonic()
    for statement in statements:
        connection.execute(statement.encode())
    return time.monotonic() - began


def amount(engine: Engine, account: int) -> Any:
    with connect(engine) as connection:
        row = connection.execute("SELECT amount FROM accounts WHERE id = %s", [account]).fetchone()
        return row[0] if row else None


PROFILE = """
rtt = 20
[statement]
begin = 10
point_read = 30
read = 50
insert = 60
update = 70
delete = 80
ddl = 90
other = 15
[commit]
reading = 5
writing = 100
"""


@pytest.mark.parametrize(
    ("statements", "at_least_ms"),
    [
        (["SELECT * FROM accounts WHERE id = 1"], 50),
        (["SELECT * FROM accounts"], 70),
        (["INSERT INTO others VALUES (1)"], 180),
        (["UPDATE accounts SET amount = 1 WHERE id = 1"], 190),
        (["DELETE FROM others"], 200),
        (["BEGIN", "SELECT * FROM accounts WHERE id = 1", "COMMIT"], 30 + 50 + 25),
        (["BEGIN", "UPDATE accounts SET amount = 1 WHERE id = 1", "COMMIT"], 30 + 90 + 120),
        (["BEGIN", "UPDATE accounts SET amount = 1 WHERE id = 1", "ROLLBACK"], 30 + 90 + 25),
        (["CREATE TABLE made (id int PRIMARY KEY)", "DROP TABLE made"], 220),
        (["SHOW timezone"], 35),
    ],
)
def test_each_statement_takes_its_time_and_the_way(
    controls: LocalControls,
    connection: psycopg.Connection[Any],
    tmp_path: Path,
    statements: list[str],
    at_least_ms: float,
) -> None:
    controls.latency.use(profile(tmp_path, PROFILE))
    assert took(connection, *statements) > at_least_ms / 1000 - len(statements) * GRAIN_S


def test_statements_in_a_pipeline_add_up_and_pay_the_way_once(
    controls: LocalControls, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    controls.latency.use(profile(tmp_path, "rtt = 300\n[statement]\npoint_read = 20\n"))
    began = time.monotonic()
    with connection.pipeline():
        cursors = [connection.execute("SELECT id FROM accounts WHERE id = %s", [i]) for i in range(1, 6)]
    together = time.monotonic() - began
    assert [cursor.fetchone() for cursor in cursors] == [(i,) for i in range(1, 6)]
    began = time.monotonic()
    for i in range(1, 6):
        connection.execute("SELECT id FROM accounts WHERE id = %s", [i])
    assert 0.300 + 5 * 0.020 - GRAIN_S < together < time.monotonic() - began


def test_others_go_on_while_one_waits(controls: LocalControls, tmp_path: Path) -> None:
    finished: list[str] = []

    def run(name: str, statement: str) -> None:
        with connect(controls.engine) as connection:
            ready.wait()
            connection.execute(statement.encode())
            finished.append(name)

    controls.latency.use(profile(tmp_path, "[statement]\nread = 1500\n"))
    ready = threading.Barrier(2)
    slow = threading.Thread(target=run, args=("slow", "SELECT * FROM accounts"))
    quick = threading.Thread(target=run, args=("quick", "SELECT * FROM accounts WHERE id = 1"))
    for thread in (slow, quick):
        thread.start()
    for thread in (slow, quick):
        thread.join()
    assert finished == ["quick", "slow"]


def test_a_profile_holds_for_sessions_that_are_open_and_ends_for_them_too(
    controls: LocalControls, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    controls.latency.use(profile(tmp_path, "rtt = 80\n"))
    assert took(connection, "SELECT 1") > 0.080 - GRAIN_S
    before = controls.injections()
    controls.latency.use("none")
    took(connection, "SELECT 1")
    assert controls.injections() == before


def test_an_error_takes_the_way_too(
    controls: LocalControls, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    controls.latency.use(profile(tmp_path, "rtt = 80\n"))
    began = time.monotonic()
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1/0")
    assert time.monotonic() - began > 0.080 - GRAIN_S


def test_a_client_that_leaves_while_its_answer_is_held_back_harms_nobody(
    controls: LocalControls, tmp_path: Path
) -> None:
    controls.latency.use(profile(tmp_path, "rtt = 500\n"))
    connection = connect(controls.engine)
    connection.pgconn.send_query(b"SELECT 1")
    connection.close()
    controls.reset()
    assert amount(controls.engine, 1) == 100


UPDATE = "UPDATE accounts SET amount = amount + 1 WHERE id = 1"


def test_a_conflict_at_commit_rolls_back_and_leaves_the_session_usable(
    controls: LocalControls, connection: psycopg.Connection[Any]
) -> None:
    with controls.faults(Fault.conflict()) as injected:
        connection.execute("BEGIN")
        assert connection.execute(UPDATE).rowcount == 1
        with pytest.raises(psycopg.errors.SerializationFailure, match=r"change conflicts .* \(OC000\)"):
            connection.execute("COMMIT")
        assert injected.count == 1
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert amount(controls.engine, 1) == 100


def test_a_conflict_in_autocommit_comes_at_the_statement(
    controls: LocalControls, connection: psycopg.Connection[Any]
) -> None:
    with controls.faults(Fault.conflict()), pytest.raises(psycopg.errors.SerializationFailure, match=r"\(OC000\)"):
        connection.execute(UPDATE)
    assert amount(controls.engine, 1) == 100


def test_every_third_commit_of_a_table_conflicts(controls: LocalControls, connection: psycopg.Connection[Any]) -> None:
    outcomes = []
    with controls.faults(Fault.conflict(table="accounts", every=3)) as injected:
        for _ in range(6):
            try:
                with connection.transaction():
                    connection.execute("INSERT INTO others VALUES (7) ON CONFLICT (id) DO NOTHING")
                    connection.execute("UPDATE accounts SET amount = 5 WHERE id = 2")
            except psycopg.errors.SerializationFailure:
                outcomes.append("lost")
            else:
                outcomes.append("won")
            with connection.transaction():
                connection.execute("DELETE FROM others WHERE id = 7")
        assert injected.count == 2
    assert outcomes == ["won", "won", "lost"] * 2


def test_a_schema_change_meets_reads_too(controls: LocalControls, connection: psycopg.Connection[Any]) -> None:
    with controls.faults(Fault.schema_change(on="select", first=1)):
        with pytest.raises(psycopg.errors.SerializationFailure, match=r"schema has been updated .* \(OC001\)"):
            connection.execute("SELECT * FROM accounts")
        assert connection.execute("SELECT count(*) FROM accounts").fetchone() == (5,)


def test_an_unavailable_server_leaves_the_connection_usable(
    controls: LocalControls, connection: psycopg.Connection[Any]
) -> None:
    with controls.faults(Fault.unavailable(on="update", first=1)):
        with pytest.raises(psycopg.errors.InternalError_, match="server unavailable"):
            connection.execute(UPDATE)
        assert connection.execute(UPDATE).rowcount == 1
    assert amount(controls.engine, 1) == 101


def test_a_refused_statement_aborts_its_transaction(
    controls: LocalControls, connection: psycopg.Connection[Any]
) -> None:
    with controls.faults(Fault.error("54000", "too much", on="update", first=1)):
        connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too much"):
            connection.execute(UPDATE)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute(UPDATE)
        assert connection.execute("COMMIT").statusmessage == "ROLLBACK"


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_commit_can_be_unavailable_and_take_effect_all_the_same(
    controls: LocalControls, connection: psycopg.Connection[Any], explicit: bool, prepared: bool
) -> None:
    with controls.faults(Fault.unavailable(on="commit", after=True)) as injected:
        if explicit:
            connection.execute("BEGIN")
            connection.execute(UPDATE, prepare=prepared)
        with pytest.raises(psycopg.errors.InternalError_, match="server unavailable"):
            connection.execute("COMMIT" if explicit else UPDATE, prepare=prepared)
        assert injected.count == 1
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert amount(controls.engine, 1) == 101


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_connection_is_cut_around_the_commit(
    controls: LocalControls, connection: psycopg.Connection[Any], explicit: bool, after: bool
) -> None:
    with controls.faults(Fault.disconnect(on="commit", after=after)) as injected:
        if explicit:
            connection.execute("BEGIN")
            connection.execute(UPDATE)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT" if explicit else UPDATE)
        assert injected.count == 1
    assert connection.broken
    assert amount(controls.engine, 1) == (101 if after else 100)


@pytest.mark.parametrize("after", [True, False])
def test_a_silent_connection_stays_open_and_says_nothing(
    controls: LocalControls, connection: psycopg.Connection[Any], after: bool
) -> None:
    with controls.faults(Fault.silence(on="commit", after=after)) as injected:
        connection.pgconn.send_query(UPDATE.encode())
        deadline = time.monotonic() + 60
        while not injected.count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert injected.count == 1
    expected = 101 if after else 100
    while amount(controls.engine, 1) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert amount(controls.engine, 1) == expected
    connection.pgconn.consume_input()
    assert connection.pgconn.is_busy()
    connection.close()


def test_a_stall_holds_up_one_session(controls: LocalControls, connection: psycopg.Connection[Any]) -> None:
    with controls.faults(Fault.stall(ms=120, on="select", first=1)):
        assert took(connection, "SELECT 1") > 0.120 - GRAIN_S


def test_a_stall_of_the_cluster_holds_up_everybody(controls: LocalControls) -> None:
    stall = Fault.stall(ms=400, cluster=True, on="insert", first=1)
    with connect(controls.engine) as first, connect(controls.engine) as second, controls.faults(stall) as injected:
        thread = threading.Thread(target=lambda: first.execute("INSERT INTO others VALUES (99)"))
        began = time.monotonic()
        thread.start()
        while not injected.count:
            time.sleep(0.005)
        second.execute("SELECT 1")
        assert time.monotonic() - began > 0.400 - GRAIN_S
        thread.join()


def test_a_fault_in_a_pipeline_skips_up_to_the_sync(
    controls: LocalControls, connection: psycopg.Connection[Any]
) -> None:
    def update_all() -> None:
        with connection.pipeline():
            for i in range(1, 6):
                connection.execute(f"UPDATE accounts SET amount = 7 WHERE id = {i}".encode())

    unavailable = pytest.raises(psycopg.errors.InternalError_, match="server unavailable")
    with controls.faults(Fault.unavailable(sql="id = 3")), unavailable:
        update_all()
    assert [amount(controls.engine, i) for i in range(1, 6)] == [100] * 5


def test_a_run_can_be_repeated(engine: Engine) -> None:
    def outcomes() -> list[bool]:
        controls = LocalControls(engine, engine.cluster)
        controls.reset()
        found = []
        with controls.faults(Fault.unavailable(on="select", probability=0.4)), connect(engine) as connection:
            for _ in range(30):
                try:
                    connection.execute("SELECT 1")
                except psycopg.errors.InternalError_:
                    found.append(False)
                else:
                    found.append(True)
        return found

    once = outcomes()
    assert once == outcomes()
    assert len(set(once)) == 2
