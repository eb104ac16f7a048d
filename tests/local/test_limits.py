"""DSQL's limits."""

from __future__ import annotations

import pytest

from pytest_dsql.local.limits import Limits


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_limit_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValueError, match=r"session_s=.*: a limit is a finite number"):
        Limits(session_s=value)


def test_zero_is_a_limit() -> None:
    assert Limits(transaction_rows=0).transaction_rows == 0
