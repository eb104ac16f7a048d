"""Receipts against what the generator counted."""

from __future__ import annotations

import pytest

from pytest_dsql.transaction import Tally
from pytest_dsql.workloads.receipts import compare_with_tally, operation_bounds, operation_prefix

NAMES = ("order_create", "order_cancel")


@pytest.mark.parametrize(
    ("receipts", "committed", "ambiguous", "expected"),
    [
        (10, 10, 0, (0, 0)),
        (10, 8, 2, (0, 0)),
        (8, 8, 2, (0, 0)),
        (9, 8, 2, (0, 0)),
        (7, 8, 2, (1, 0)),
        (11, 8, 2, (0, 1)),
        (0, 8, 0, (8, 0)),
    ],
)
def test_receipts_are_the_committed_and_at_most_the_ambiguous(
    receipts: int, committed: int, ambiguous: int, expected: tuple[int, int]
) -> None:
    tally = Tally(committed={"order_create": committed}, ambiguous={"order_create": ambiguous})
    assert compare_with_tally({"order_create": receipts}, tally, NAMES) == expected


def test_one_transactions_surplus_does_not_hide_the_others_loss() -> None:
    tally = Tally(committed={"order_create": 5, "order_cancel": 5}, ambiguous={})
    assert compare_with_tally({"order_create": 6, "order_cancel": 4}, tally, NAMES) == (1, 1)


def test_reads_have_no_receipts_to_compare() -> None:
    assert compare_with_tally({}, Tally(committed={"product_read": 5, "mine": 3}, ambiguous={}), NAMES) == (0, 0)


def test_the_bounds_of_a_run_hold_its_operations_and_no_other_runs() -> None:
    bounds = operation_bounds(41)
    ids = [f"{operation_prefix(number)}0-1" for number in (40, 41, 42)]
    assert [bounds["operations"] <= one < bounds["operations_end"] for one in ids] == [False, True, False]
