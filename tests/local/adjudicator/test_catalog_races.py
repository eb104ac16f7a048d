"""Transfers beside changes of the catalog: who is in the way is told so, and the books add up."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from tests.local.adjudicator.bank import TABLES, assert_books, open_accounts, transfers
from tests.local.adjudicator.racing import Connect, Make, Racer, assert_free, race


@pytest.fixture
def bank(connect: Connect, make: Make) -> None:
    make(TABLES)
    open_accounts(connect)


@pytest.mark.usefixtures("bank")
def test_transfers_add_up_while_the_catalog_changes(connect: Connect) -> None:
    acknowledged: set[str] = set()
    stop = threading.Event()

    def define(racer: Racer) -> None:
        try:
            for number in range(4):
                for statement in (
                    f"ALTER TABLE r_account ADD COLUMN x{number} int",
                    f"CREATE TABLE r_new{number} (k int)",
                    f"ALTER TABLE r_ledger ADD COLUMN x{number} int",
                    f"DROP TABLE r_new{number}",
                ):
                    racer.execute_until_done(statement)
                    time.sleep(0.1)
        finally:
            stop.set()

    outcome = race(connect, define, *[transfers(acknowledged, stop=stop)] * 8)
    assert outcome.stale > 0
    assert_books(connect, acknowledged)
    assert_free(connect, "r_account.balance", "r_ledger.amount")


@pytest.mark.parametrize("statement", ["UPDATE r_account SET balance = 1 WHERE k = 1", "SELECT * FROM r_account"])
@pytest.mark.usefixtures("bank")
def test_a_table_is_changed_under_a_transaction_that_has_met_a_rival(connect: Connect, statement: str) -> None:
    took = []
    with connect() as one, connect() as other, connect() as third:
        for number in range(3):
            told_of_changes(other, "UPDATE r_account SET balance = 5 WHERE k = 0")
            told_of_changes(one, "UPDATE r_account SET balance = 6 WHERE k = 0")
            one.execute(statement)
            began = time.monotonic()
            third.execute(f"ALTER TABLE r_account ADD COLUMN met{number} int")
            took.append(time.monotonic() - began)
            with pytest.raises(psycopg.errors.SerializationFailure, match="OC001"):
                one.execute("COMMIT")
            with pytest.raises(psycopg.errors.SerializationFailure, match="OC001"):
                other.execute("COMMIT")
    # It has waited for nobody's end: whoever waits for another does so each time, not only where the machine is busy.
    assert min(took) < 1


def told_of_changes(connection: psycopg.Connection[Any], sql: str) -> None:
    """Begin a transaction with a statement; again when the first one was told of a change of the catalog."""
    for _ in range(2):
        connection.execute("BEGIN")
        try:
            connection.execute(sql)
        except psycopg.errors.SerializationFailure:
            connection.execute("ROLLBACK")
        else:
            return
    raise AssertionError("told twice of one change")
