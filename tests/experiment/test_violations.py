"""What the check of a user's own workload may answer."""

from __future__ import annotations

from decimal import Decimal

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.violations import whole_violations


class Bank:
    """Stands for the user's workload."""


def test_what_postgresql_adds_up_is_a_whole_number() -> None:
    counts = whole_violations({"balance": Decimal(334), "receipts": 0, "orphans": True, "rounded": 2.0}, Bank())
    assert counts == {"balance": 334, "receipts": 0, "orphans": 1, "rounded": 2}
    assert {type(count) for count in counts.values()} == {int}


def test_nothing_checked_stays_nothing_checked() -> None:
    assert whole_violations({}, Bank()) == {}


@pytest.mark.parametrize("count", [None, "3", Decimal("0.5"), float("nan"), Decimal("Infinity")])
def test_what_is_no_count_is_refused_by_its_name(count: object) -> None:
    with pytest.raises(UsageError, match=r"Bank\.check_cell: .* violations of 'balance' is no whole number"):
        whole_violations({"balance": count}, Bank())


@pytest.mark.parametrize("found", [None, 0, [("balance", 1)]])
def test_an_answer_without_names_is_refused(found: object) -> None:
    with pytest.raises(UsageError, match=r"Bank\.check_cell must return the number of violations by the name"):
        whole_violations(found, Bank())
