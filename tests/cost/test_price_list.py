"""The Price List API: how an item is asked for, which of the products is it, and what happens when it refuses.

moto has no `pricing`; answers have the form of GetProducts (Price List API reference).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.price_list import PriceList, usage_types
from pytest_dsql.cost.prices import Prices
from tests.cost.conftest import Answers, product, refusal

Answering = Callable[[Answers], list[tuple[str, Mapping[str, Any]]]]

#: service code -> what it sells here
SOLD = {
    "AuroraDSQL": [
        product("APN2-DSQL-DistributedProcessingUnits", "0.0000100000"),
        product("APN2-DSQL-Storage-ByteHrs", "0.4000000000"),
        product("APN2-DSQL-CDC-Something", "7.0000000000"),
    ],
    "AmazonRDS": [
        product("APN2-InstanceUsageIOOptimized:db.r6g.xlarge", "0.814"),
        product("APN2-InstanceUsage:db.r6g.xl", "0.626"),
        product("APN2-Multi-AZUsage:db.r6g.xl", "1.086"),
        product("APN2-Aurora:ServerlessV2IOOptimizedUsage", "0.26"),
        product("APN2-Aurora:ServerlessV2Usage", "0.20"),
        product("APN2-Aurora:StorageIOUsage", "0.00000024"),
        product("APN2-Aurora:StorageUsage", "0.12"),
        product("APN2-RDS:Multi-AZ-GP3-Storage", "0.262"),
    ],
    "AWSLambda": [product("APN2-Request-ARM", "0.0000002"), product("APN2-Request", "0.5")],
}


def sell(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"PriceList": SOLD.get(parameters["ServiceCode"], []), "ResponseMetadata": {}}


@pytest.mark.parametrize(
    ("item", "usd", "unit"),
    [
        ("dsql-dpu", 10.0, "million DPU"),
        ("dsql-storage", 0.4, "GB-month"),
        ("aurora-instance/db.r6g.xlarge", 0.626, "hour"),
        ("aurora-instance-iopt/db.r6g.xlarge", 0.814, "hour"),
        ("aurora-acu", 0.20, "hour"),
        ("aurora-acu-iopt", 0.26, "hour"),
        ("aurora-io", 0.24, "million"),
        ("aurora-storage", 0.12, "GB-month"),
        ("rds-multi-az/db.r6g.xlarge", 1.086, "hour"),
        ("rds-multi-az-gp3", 0.262, "GB-month"),
        ("lambda-requests", 0.2, "million"),
    ],
)
def test_an_item_is_found_among_the_products(
    clients: Clients, answering: Answering, item: str, usd: float, unit: str
) -> None:
    answering({"GetProducts": sell})
    price = PriceList(clients)(item, "ap-northeast-2")
    assert price is not None
    assert price.usd == pytest.approx(usd)
    assert (price.unit, price.listed, price.source) == (unit, True, "AWS Price List API")


def test_it_is_asked_for_by_region_and_class_and_on_all_pages(clients: Clients, answering: Answering) -> None:
    def pages(parameters: Mapping[str, Any]) -> dict[str, Any]:
        if "NextToken" not in parameters:
            return {"PriceList": SOLD["AmazonRDS"][:1], "NextToken": "2"}
        return {"PriceList": SOLD["AmazonRDS"][1:]}

    calls = answering({"GetProducts": pages})
    price = PriceList(clients)("rds-multi-az/db.r6g.xlarge", "ap-northeast-2")
    assert price is not None
    assert price.usd == 1.086
    assert [operation for operation, _ in calls] == ["GetProducts", "GetProducts"]
    filters = {one["Field"]: one["Value"] for one in calls[0][1]["Filters"]}
    assert filters == {
        "regionCode": "ap-northeast-2",
        "instanceType": "db.r6g.xlarge",
        "databaseEngine": "PostgreSQL",
        "deploymentOption": "Multi-AZ",
    }


def test_the_dearest_tier_counts(clients: Clients, answering: Answering) -> None:
    tiers = [product("APN2-Request-ARM", "0.0000001"), product("APN2-Request-ARM", "0.0000002")]
    answering({"GetProducts": lambda _parameters: {"PriceList": tiers}})
    price = PriceList(clients)("lambda-requests", "ap-northeast-2")
    assert price is not None
    assert price.usd == pytest.approx(0.2)


def test_what_is_not_listed_comes_from_the_table(clients: Clients, answering: Answering) -> None:
    answering({"GetProducts": lambda _parameters: {"PriceList": []}})
    prices = Prices(PriceList(clients))
    assert prices.get("dsql-dpu", "us-east-1").usd == 8.0
    assert prices.describe() == "table of 2026-04-28"


def test_a_refusal_is_asked_about_once_and_the_table_says_its_date(clients: Clients, answering: Answering) -> None:
    calls = answering({"GetProducts": refusal("AccessDeniedException")})
    price_list = PriceList(clients)
    prices = Prices(price_list)
    assert prices.get("dsql-dpu", "ap-northeast-2").usd == 10.0
    assert prices.get("dsql-storage", "ap-northeast-2").usd == 0.4
    assert len(calls) == 1
    assert prices.describe() == "table of 2026-09-11"
    assert price_list.refusal is not None
    assert "pricing:GetProducts" in price_list.refusal or "some:Thing" in price_list.refusal
    assert "123456789012" not in price_list.refusal


def test_an_account_without_the_service_is_a_refusal(clients: Clients) -> None:
    """As moto answers it: nothing is stubbed here."""
    prices = Prices(PriceList(clients))
    assert prices.get("dsql-dpu", "us-east-1").listed is False


def test_usage_types_of_a_bill() -> None:
    pattern = usage_types(["dsql-dpu", "aurora-instance/db.r6g.xlarge"])
    for usage_type in (
        "USE1-DSQL-DistributedProcessingUnits",
        "InstanceUsage:db.r6g.xl",
        "APN2-InstanceUsage:db.r6g.xl",
    ):
        assert pattern.fullmatch(usage_type)
    for usage_type in ("USE1-DSQL-Storage-ByteHrs", "Multi-AZUsage:db.r6g.xl", "BoxUsage:m5.large"):
        assert not pattern.fullmatch(usage_type)
    assert not usage_types([]).fullmatch("")
