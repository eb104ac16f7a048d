"""The insert workload."""

from __future__ import annotations

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.transaction import CellRun, CellWorkload, Context, Tally, Transaction
from pytest_dsql.workloads.inserts.workload import LOADED, SCHEMA, Inserts, insert_row, loaded_id, read_row
from pytest_dsql.workloads.transfers.workload import Connect


@pytest.fixture
def inserts(connect: Connect) -> Inserts:
    inserts = Inserts()
    inserts.load(connect, dialect="postgresql")
    return inserts


def run_of(connect: Connect, inserts: Inserts) -> CellRun:
    return inserts.begin_cell(connect, cell="c", slots=1, requests_hint=10)


def drive(connect: Connect, run: CellRun, transaction: Transaction, requests: int) -> int:
    ctx = Context(seed=1, run=run, scale=Inserts().scale)
    with connect() as connection:
        return sum(run_transaction(connection, transaction, ctx).committed for _ in range(requests))


def test_inserts_is_a_workload_of_cells() -> None:
    workload: CellWorkload = Inserts()
    assert workload.scale.rows == LOADED


def test_loaded_ids_differ() -> None:
    assert len({loaded_id(number) for number in range(LOADED)}) == LOADED


def test_a_row_that_was_loaded_can_be_read(connect: Connect, inserts: Inserts) -> None:
    inserts.load(connect, dialect="postgresql")
    with connect() as connection:
        assert connection.execute(f"SELECT data FROM {SCHEMA}.rows WHERE id = %s", (loaded_id(7),)).fetchone() == (
            "loaded",
        )
    assert drive(connect, run_of(connect, inserts), read_row, 5) == 5


def test_every_insert_is_there_once(connect: Connect, inserts: Inserts) -> None:
    run = run_of(connect, inserts)
    assert drive(connect, run, insert_row, 10) == 10
    assert inserts.check_cell(connect, run, Tally({"insert_row": 10}, {})) == {
        "no_lost_commit": 0,
        "row_inserted_once": 0,
        "no_doubled_effect": 0,
    }


@pytest.mark.parametrize(
    ("statement", "committed", "noticed"),
    [
        (
            "DELETE FROM {s}.rows WHERE data = (SELECT max(data) FROM {s}.rows WHERE data <> 'loaded')",
            3,
            "no_lost_commit",
        ),
        ("INSERT INTO {s}.rows (data) SELECT data FROM {s}.rows WHERE data <> 'loaded'", 3, "row_inserted_once"),
        ("SELECT 1", 2, "no_doubled_effect"),
    ],
)
def test_a_broken_insert_is_noticed(
    connect: Connect, inserts: Inserts, statement: str, committed: int, noticed: str
) -> None:
    run = run_of(connect, inserts)
    drive(connect, run, insert_row, 3)
    with connect() as connection:
        connection.execute(statement.format(s=SCHEMA))
    violations = inserts.check_cell(connect, run, Tally({"insert_row": committed}, {}))
    assert [name for name, count in violations.items() if count] == [noticed]


def test_a_cell_without_the_table_is_refused(connect: Connect) -> None:
    with pytest.raises(UsageError, match="not there"):
        run_of(connect, Inserts())


def test_removing_leaves_nothing(connect: Connect, inserts: Inserts) -> None:
    assert inserts.remove(connect)
    assert not inserts.remove(connect)
