"""Scales: the numbers of the published experiment, and only numbers that can be loaded."""

from __future__ import annotations

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.workloads.orders.scales import SCALES, OrdersScale, scale_named


def test_full_scale_has_the_published_row_counts() -> None:
    assert dict(SCALES["full"].rows) == {
        "tenants": 100,
        "customers": 1_000_000,
        "products": 200_000,
        "inventory": 200_000,
        "orders": 11_000_000,
        "order_items": 27_500_000,
        "ledger": 11_000_000,
    }


def test_quick_scale_is_a_hundredth_of_the_full_one() -> None:
    quick, full = SCALES["quick"], SCALES["full"]
    assert (quick.customers * 100, quick.products * 100, quick.orders * 100) == (
        full.customers,
        full.products,
        full.orders,
    )


def test_set_aside_orders_are_the_last_ones() -> None:
    tiny = SCALES["tiny"]
    assert range(tiny.first_set_aside, tiny.orders) == range(200, 400)


def test_unknown_scale_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no scale 'huge'.*tiny, quick, full"):
        scale_named("huge")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"orders": 402}, "multiple of 4: 402"),
        ({"orders": 0}, "orders must be at least 1"),
        ({"set_aside": 404}, "set_aside must be 0 to 400"),
        ({"set_aside": -1}, "set_aside must be 0 to 400"),
        ({"products": 2}, "up to 3 of the products, not 2"),
        ({"tenants": 200}, "more tenants than customers or products"),
    ],
)
def test_scale_that_cannot_be_loaded_is_refused(changed: dict[str, int], said: str) -> None:
    sizes = {"tenants": 2, "customers": 100, "products": 50, "orders": 400, "set_aside": 200} | changed
    with pytest.raises(UsageError, match=said):
        OrdersScale("mine", **sizes)
