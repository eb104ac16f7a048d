"""Receipts: the row that an operation leaves under its id, so that its effect can be counted and never doubled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_dsql.transaction import Tally


def operation_prefix(number: int) -> str:
    """Return what the operation ids of a run begin with.

    The number has a fixed width, so that operation ids of one run are neighbours whatever the database's collation.
    """
    return f"r{number:08}-"


def operation_bounds(number: int) -> dict[str, str]:
    """Return the bounds of a run's operation ids as parameters of a query; the end is excluded."""
    return {"operations": f"r{number:08}", "operations_end": f"r{number + 1:08}"}


def compare_with_tally(receipts: Mapping[str, int], tally: Tally, names: Iterable[str]) -> tuple[int, int]:
    """Return (lost commits, doubled effects), given the receipts of a run by transaction.

    There must be as many as were counted as committed, plus at most the ambiguous ones.
    """
    lost = doubled = 0
    for name in names:
        committed = tally.committed.get(name, 0)
        found = receipts.get(name, 0)
        lost += max(0, committed - found)
        doubled += max(0, found - committed - tally.ambiguous.get(name, 0))
    return lost, doubled
