"""The transfer workload: loading, honest load, and the broken transactions that its invariants catch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_dsql.access import HOT
from pytest_dsql.errors import ForeignSchema, UsageError
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.transaction import CellRun, CellWorkload, Context, Tally
from pytest_dsql.workloads.transfers.schema import OPENING, SCHEMA, TransfersScale
from pytest_dsql.workloads.transfers.transactions import transfer
from pytest_dsql.workloads.transfers.workload import Connect, Transfers

PATIENT = RetryPolicy(attempts=100, deadline_s=60.0, base_s=0.001)
HOLDS = dict.fromkeys(
    (
        "balance_never_negative",
        "balances_follow_transfers",
        "money_conserved",
        "transfer_has_one_receipt",
        "receipt_has_its_transfer",
        "no_lost_commit",
        "no_doubled_effect",
    ),
    0,
)


@pytest.fixture
def loaded_transfers(connect: Connect) -> Transfers:
    transfers = Transfers("tiny")
    assert transfers.load(connect, dialect="postgresql") == 100
    return transfers


def drive(connect: Connect, run: CellRun, slot: int, requests: int) -> int:
    ctx = Context(seed=3, run=run, slot=slot, scale=Transfers("tiny").scale, access=HOT)
    with connect() as connection:
        return sum(run_transaction(connection, transfer, ctx, retry=PATIENT).committed for _ in range(requests))


def test_transfers_is_a_workload_of_cells() -> None:
    workload: CellWorkload = Transfers("tiny")
    assert workload.scale.accounts == 100
    assert Transfers("tiny").mix.weights == {"balance_read": 0.2, "transfer": 0.8}


def test_loading_again_changes_nothing(connect: Connect, loaded_transfers: Transfers) -> None:
    assert loaded_transfers.load(connect, dialect="postgresql") == 0
    with connect() as connection:
        assert connection.execute(f"SELECT count(*), sum(balance) FROM {SCHEMA}.accounts").fetchone() == (
            100,
            100 * OPENING,
        )


def test_what_an_interrupted_load_left_is_completed(connect: Connect, loaded_transfers: Transfers) -> None:
    with connect() as connection:
        connection.execute(f"DELETE FROM {SCHEMA}.accounts WHERE id >= 40")
        connection.execute(f"UPDATE {SCHEMA}.identity SET state = 'loading'")
    assert loaded_transfers.load(connect, dialect="postgresql") == 60


def test_another_scale_is_refused(connect: Connect, loaded_transfers: Transfers) -> None:
    with pytest.raises(UsageError, match="holds the transfers data of scale tiny"):
        Transfers("quick").load(connect, dialect="postgresql")


def test_somebody_elses_schema_is_not_touched(connect: Connect) -> None:
    with connect() as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"CREATE TABLE {SCHEMA}.accounts (mine int)")
    with pytest.raises(ForeignSchema):
        Transfers("tiny").load(connect, dialect="postgresql")


def test_removing_leaves_nothing(connect: Connect, loaded_transfers: Transfers) -> None:
    assert loaded_transfers.remove(connect)
    assert not loaded_transfers.remove(connect)


def test_a_cell_without_accounts_is_refused(connect: Connect) -> None:
    with pytest.raises(UsageError, match="not loaded"):
        Transfers("tiny").begin_cell(connect, cell="c", slots=1, requests_hint=1)


def test_every_invariant_holds_after_concurrent_transfers(connect: Connect, loaded_transfers: Transfers) -> None:
    run = loaded_transfers.begin_cell(connect, cell="honest", slots=4, requests_hint=400)
    with ThreadPoolExecutor(4) as threads:
        committed = sum(threads.map(lambda slot: drive(connect, run, slot, 100), range(4)))
    assert committed == 400
    assert loaded_transfers.check_cell(connect, run, Tally({"transfer": committed}, {})) == HOLDS


def test_the_rows_of_another_run_count_for_nothing(connect: Connect, loaded_transfers: Transfers) -> None:
    first = loaded_transfers.begin_cell(connect, cell="first", slots=1, requests_hint=10)
    drive(connect, first, 0, 10)
    second = loaded_transfers.begin_cell(connect, cell="second", slots=1, requests_hint=10)
    assert second.number == first.number + 1
    drive(connect, second, 0, 5)
    assert loaded_transfers.check_cell(connect, second, Tally({"transfer": 5}, {})) == HOLDS


def test_a_balance_that_is_too_low_is_a_no(connect: Connect, loaded_transfers: Transfers) -> None:
    with connect() as connection:
        connection.execute(f"UPDATE {SCHEMA}.accounts SET balance = 0")
    run = loaded_transfers.begin_cell(connect, cell="poor", slots=1, requests_hint=10)
    assert drive(connect, run, 0, 3) == 0
    assert loaded_transfers.check_cell(connect, run, Tally({}, {})) == HOLDS


#: What went wrong -> the statement that does it after one honest transfer, and the invariants that notice.
BROKEN: dict[str, tuple[str, set[str]]] = {
    "the credit is lost": (
        "UPDATE {s}.accounts SET balance = balance - t.amount FROM {s}.transfers t WHERE accounts.id = t.credit",
        {"balances_follow_transfers", "money_conserved"},
    ),
    "the credit goes to another account": (
        """WITH other AS (
               SELECT min(a.id) AS id FROM {s}.accounts a, {s}.transfers WHERE a.id NOT IN (debit, credit)
           )
           UPDATE {s}.accounts a SET balance = a.balance + CASE a.id WHEN t.credit THEN -t.amount ELSE t.amount END
           FROM {s}.transfers t, other WHERE a.id IN (t.credit, other.id)""",
        {"balances_follow_transfers"},
    ),
    "the transfer is not written": (
        "DELETE FROM {s}.transfers",
        {"balances_follow_transfers", "receipt_has_its_transfer"},
    ),
    "the transfer has another amount": (
        "UPDATE {s}.transfers SET amount = amount + 1",
        {"balances_follow_transfers"},
    ),
    "the receipt is not written": (
        "DELETE FROM {s}.operation_receipts",
        {"transfer_has_one_receipt", "no_lost_commit"},
    ),
    "the receipt is doubled": (
        """INSERT INTO {s}.operation_receipts
           SELECT operation_id || '-again', transfer, now() FROM {s}.operation_receipts""",
        {"transfer_has_one_receipt", "no_doubled_effect"},
    ),
    "everything is lost after the commit": (
        """WITH undone AS (DELETE FROM {s}.operation_receipts), gone AS (DELETE FROM {s}.transfers RETURNING *)
           UPDATE {s}.accounts a SET balance = a.balance + CASE a.id WHEN debit THEN amount ELSE -amount END
           FROM gone WHERE a.id IN (debit, credit)""",
        {"no_lost_commit"},
    ),
    "a balance falls below nothing": (
        """ALTER TABLE {s}.accounts DROP CONSTRAINT accounts_balance_check;
           UPDATE {s}.accounts SET balance = balance - 5000000 WHERE id = 0;
           UPDATE {s}.accounts SET balance = balance + 5000000 WHERE id = 1""",
        {"balance_never_negative", "balances_follow_transfers"},
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_transfer_is_noticed(connect: Connect, loaded_transfers: Transfers, what: str) -> None:
    statement, expected = BROKEN[what]
    run = loaded_transfers.begin_cell(connect, cell="broken", slots=1, requests_hint=1)
    assert drive(connect, run, 0, 1) == 1
    with connect() as connection:
        connection.execute(statement.format(s=SCHEMA))
    violations = loaded_transfers.check_cell(connect, run, Tally({"transfer": 1}, {}))
    assert {name for name, count in violations.items() if count} == expected


def test_every_invariant_is_broken_by_something() -> None:
    assert set().union(*(noticed for _, noticed in BROKEN.values())) == set(HOLDS)


def test_an_incomplete_count_cannot_tell_what_was_doubled(connect: Connect, loaded_transfers: Transfers) -> None:
    run = loaded_transfers.begin_cell(connect, cell="killed", slots=1, requests_hint=1)
    drive(connect, run, 0, 1)
    violations = loaded_transfers.check_cell(connect, run, Tally({}, {}, complete=False))
    assert "no_doubled_effect" not in violations
    assert not any(violations.values())


def test_a_scale_of_one_account_is_refused() -> None:
    with pytest.raises(UsageError, match="takes two accounts"):
        TransfersScale("one", 1)
    with pytest.raises(UsageError, match="no scale 'huge'"):
        Transfers("huge")
