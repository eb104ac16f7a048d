"""The tables of the transfer workload, in a schema of its own, and how much of it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

from pytest_dsql.errors import UsageError

SCHEMA: Final = "pytest_dsql_transfers"

#: Raised whenever tables or rows change meaning: a schema of another version is refused, not guessed at.
VERSION: Final = 1

#: What every account begins with, in minor units: far more than a cell moves.
OPENING: Final = 1_000_000

#: Table -> CREATE TABLE, parents first.
TABLES: Final = {
    "accounts": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.accounts (
            id bigint PRIMARY KEY,
            balance bigint NOT NULL CHECK (balance >= 0)
        )""",
    "transfers": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.transfers (
            id bigint PRIMARY KEY,
            debit bigint NOT NULL REFERENCES {SCHEMA}.accounts (id),
            credit bigint NOT NULL REFERENCES {SCHEMA}.accounts (id),
            amount bigint NOT NULL CHECK (amount > 0),
            created timestamptz NOT NULL
        )""",
    "operation_receipts": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.operation_receipts (
            operation_id text PRIMARY KEY,
            transfer bigint NOT NULL,
            created timestamptz NOT NULL
        )""",
    "cell_runs": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.cell_runs (
            number bigint PRIMARY KEY,
            cell text NOT NULL,
            created timestamptz NOT NULL
        )""",
}


@final
@dataclass(frozen=True, slots=True)
class TransfersScale:
    """Row counts of the transfer workload. Accounts are numbered from 0."""

    name: str
    accounts: int

    def __post_init__(self) -> None:
        if self.accounts < 2:
            raise UsageError(f"scale {self.name!r}: a transfer takes two accounts, not {self.accounts}")

    def describe(self) -> str:
        """Name and size in one line."""
        return f"{self.name} (accounts {self.accounts})"


SCALES: Final[Mapping[str, TransfersScale]] = MappingProxyType(
    {
        "tiny": TransfersScale("tiny", 100),
        "quick": TransfersScale("quick", 10_000),
        "full": TransfersScale("full", 1_000_000),
    }
)


def scale_named(name: str) -> TransfersScale:
    """Return the scale of that name. Raises UsageError naming the scales there are."""
    if name not in SCALES:
        raise UsageError(f"no scale {name!r} of the transfer workload: choose {', '.join(SCALES)}")
    return SCALES[name]
