"""Accounts and a ledger: transfers whose sums tell whether anything was lost or done twice."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.local.adjudicator.racing import Connect, Connection, Racer, rows

TABLES: Final = """
    CREATE TABLE r_account (k int PRIMARY KEY, balance int NOT NULL);
    CREATE TABLE r_ledger (id uuid PRIMARY KEY, debit int NOT NULL, credit int NOT NULL, amount int NOT NULL)
"""
ACCOUNTS: Final = 8
_OPENING: Final = 1000


def open_accounts(connect: Connect) -> None:
    """Put the same amount into every account."""
    with connect() as connection:
        sql = f"INSERT INTO r_account SELECT g, {_OPENING} FROM generate_series(0, {ACCOUNTS - 1}) g"
        connection.execute(sql)


def transfer(connection: Connection, identity: str, debit: int, credit: int, amount: int) -> None:
    """Move money, and write it down."""
    sql = "UPDATE r_account SET balance = balance + %s WHERE k = %s RETURNING balance"
    assert len(connection.execute(sql, (-amount, debit)).fetchall()) == 1
    assert len(connection.execute(sql, (amount, credit)).fetchall()) == 1
    connection.execute("INSERT INTO r_ledger VALUES (%s, %s, %s, %s)", (identity, debit, credit, amount))


def transfers(
    acknowledged: set[str], count: int | None = None, stop: threading.Event | None = None
) -> Callable[[Racer], None]:
    """A job that makes so many transfers, or until it is stopped, and remembers each that was acknowledged."""

    def job(racer: Racer) -> None:
        for number in itertools.count():
            if number == count or (stop is not None and stop.is_set()):
                return
            debit, credit = racer.random.sample(range(ACCOUNTS), 2)
            identity = str(uuid.UUID(int=racer.random.getrandbits(128)))
            racer.until_done(transfer, identity, debit, credit, racer.random.randint(1, 50))
            acknowledged.add(identity)

    return job


def assert_books(connect: Connect, acknowledged: set[str], *, unknown: set[str] | None = None) -> None:
    """Every acknowledged transfer is in the ledger, no other is, and the balances are what the ledger says.

    `unknown` are those whose outcome nobody knows: they may be there, but then wholly.
    """
    entries = rows(connect, "SELECT id, debit, credit, amount FROM r_ledger")
    found = {str(entry[0]) for entry in entries}
    assert acknowledged <= found, f"lost: {acknowledged - found}"
    assert found <= acknowledged | (unknown or set()), f"not acknowledged: {found - acknowledged}"
    balances = Counter(dict.fromkeys(range(ACCOUNTS), _OPENING))
    for _, debit, credit, amount in entries:
        balances[debit] -= amount
        balances[credit] += amount
    assert dict(rows(connect, "SELECT k, balance FROM r_account")) == dict(balances)
