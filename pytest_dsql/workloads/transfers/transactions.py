"""The two transactions of the transfer workload: one statement per round trip, each text constant and prepared once."""

from __future__ import annotations

from typing import Final

from pytest_dsql.transaction import Context, Rejected, Steps, transaction
from pytest_dsql.workloads.transfers.schema import SCHEMA

#: A transfer moves 1 to so many minor units.
MAX_AMOUNT: Final = 100

BALANCE: Final = f"SELECT balance FROM {SCHEMA}.accounts WHERE id = $1"

RECEIPT: Final = f"SELECT 1 FROM {SCHEMA}.operation_receipts WHERE operation_id = $1"

MOVE: Final = f"UPDATE {SCHEMA}.accounts SET balance = balance + $2 WHERE id = $1 AND balance + $2 >= 0"

INSERT_TRANSFER: Final = f"""
    INSERT INTO {SCHEMA}.transfers (id, debit, credit, amount, created) VALUES ($1, $2, $3, $4, now())"""

INSERT_RECEIPT: Final = f"""
    INSERT INTO {SCHEMA}.operation_receipts (operation_id, transfer, created) VALUES ($1, $2, now())"""


@transaction(kind="read")
def balance_read(ctx: Context) -> Steps:
    """Read an account's balance."""
    yield BALANCE, (ctx.pick(ctx.scale.accounts),)
    return None


@transaction(kind="write")
def transfer(ctx: Context) -> Steps:
    """Move an amount from one account to another; rejected when the balance is too low."""
    accounts = ctx.scale.accounts
    debit = ctx.pick(accounts)
    credit = ctx.pick(accounts)
    while credit == debit:
        # Not drawn again by the pattern: with a single hot account that might never end.
        credit = ctx.rng.randrange(accounts)
    amount = 1 + ctx.rng.randrange(MAX_AMOUNT)
    receipt = yield RECEIPT, (ctx.operation_id,)
    if receipt.rowcount:
        return None  # an earlier attempt committed, although its answer was lost
    # In the order of the accounts, so that databases with row locks meet no deadlock.
    for account, change in sorted(((debit, -amount), (credit, amount))):
        moved = yield MOVE, (account, change)
        if moved.rowcount == 0:
            return Rejected("balance too low")
    number = ctx.new_id()
    yield INSERT_TRANSFER, (number, debit, credit, amount)
    yield INSERT_RECEIPT, (ctx.operation_id, number)
    return None
