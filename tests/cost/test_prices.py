"""Prices: the table is sound and says its dates and sources, the list is asked first, what has no price is said."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_dsql.cost.prices import NoPrice, Price, Prices, tabled


def test_every_price_of_the_table_has_a_date_and_a_source() -> None:
    for price in tabled().values():
        assert date(2025, 1, 1) <= price.dated <= date(2026, 12, 31)
        assert len(price.source) > 20
        assert not price.listed


@pytest.mark.parametrize(
    ("region", "usd", "storage"),
    [("us-east-1", 8.0, 0.33), ("ap-northeast-1", 10.0, 0.40), ("ap-northeast-2", 10.0, 0.40)],
)
def test_aurora_dsql_costs_what_its_page_says(region: str, usd: float, storage: float) -> None:
    prices = Prices()
    assert prices.get("dsql-dpu", region).of(1_000_000) == pytest.approx(usd)
    assert prices.get("dsql-storage", region).of(1, 730 * 3600) == pytest.approx(storage)


def test_what_is_paid_for_by_time() -> None:
    price = Prices().get("rds-multi-az/db.r6g.xlarge", "us-east-1")
    assert price.by_time
    assert price.of(2, 1800) == pytest.approx(price.usd)
    assert not Prices().get("dsql-dpu", "us-east-1").by_time


def test_some_prices_are_the_same_in_every_region() -> None:
    assert Prices().get("public-ipv4", "eu-central-1").usd == 0.005


def test_the_list_is_asked_first_and_each_price_once() -> None:
    asked = []

    def lookup(item: str, region: str) -> Price | None:
        asked.append((item, region))
        if item != "dsql-dpu":
            return None
        return Price(item, region, 7.5, "million DPU", date(2026, 11, 30), "list", listed=True)

    prices = Prices(lookup)
    for _ in range(2):
        assert prices.get("dsql-dpu", "us-east-1").usd == 7.5
    assert prices.describe() == "Price List API"
    assert prices.get("dsql-storage", "us-east-1").usd == 0.33
    assert asked == [("dsql-dpu", "us-east-1"), ("dsql-storage", "us-east-1")]
    assert prices.describe() == "Price List API, and table of 2026-04-28"


def test_the_table_says_the_date_of_its_oldest_price() -> None:
    prices = Prices()
    prices.get("dsql-dpu", "ap-northeast-2")
    assert prices.describe() == "table of 2026-09-11"
    prices.get("dsql-dpu", "ap-northeast-1")
    assert prices.describe() == "table of 2025-05-28"


def test_a_region_without_a_price_may_be_taken_for_the_dearest() -> None:
    prices = Prices(assume=True)
    price = prices.get("dsql-dpu", "eu-central-1")
    assert (price.usd, price.region, price.assumed) == (10.0, "eu-central-1", True)
    assert prices.describe().endswith(", for eu-central-1 the dearest of other Regions")
    assert prices.find("nothing-like-it", "eu-central-1") is None


def test_no_price_says_what_would_help() -> None:
    prices = Prices()
    assert prices.find("aurora-acu", "eu-central-1") is None
    with pytest.raises(NoPrice, match=r"aurora-acu in eu-central-1: .*pricing:GetProducts"):
        prices.get("aurora-acu", "eu-central-1")


@pytest.mark.parametrize(("usd", "unit"), [(0.0, "hour"), (-1.0, "hour"), (float("nan"), "hour"), (1.0, "fortnight")])
def test_what_is_no_price_is_refused(usd: float, unit: str) -> None:
    with pytest.raises(ValueError, match="price of x"):
        Price("x", "us-east-1", usd, unit, date(2026, 1, 1), "nowhere")
