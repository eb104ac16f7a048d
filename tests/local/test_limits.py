"""DSQL's limits."""

from __future__ import annotations

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local.limits import Limits


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_limit_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValueError, match=r"session_s=.*: a limit is a finite number"):
        Limits(session_s=value)


def test_zero_is_a_limit() -> None:
    assert Limits(transaction_rows=0).transaction_rows == 0


def test_limits_are_changed_by_name_with_numbers_or_texts() -> None:
    changed = Limits().changed({"session_s": 2, "connections": "5", "connect_rate_per_s": "0.5"})
    assert changed == Limits(session_s=2.0, connections=5, connect_rate_per_s=0.5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speed": 1}, "'speed' is no limit; known: connections, connect_rate_per_s"),
        ({"connections": 2.5}, "connections=2.5: a whole number"),
        ({"connections": True}, "connections=True: a whole number"),
        ({"session_s": "soon"}, "session_s=soon: a number, 0 or more"),
        ({"session_s": -1}, "session_s=-1.0: a limit is a finite number"),
        ({"connections": float("inf")}, "connections=inf: a whole number"),
    ],
)
def test_a_wrong_limit_is_a_usage_error(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Limits().changed(values)
