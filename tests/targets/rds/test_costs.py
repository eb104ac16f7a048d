"""What is paid for of each target, as `cost` prices it."""

from __future__ import annotations

import pytest

from pytest_dsql.cost.prices import Prices
from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape
from pytest_dsql.settings import Settings
from pytest_dsql.targets.created import module_of

SUBNETS = {"subnets": "subnet-1,subnet-2"}


def shape(target: str, **options: str) -> CostShape:
    given = {name.replace("_", "-"): value for name, value in options.items()}
    found = module_of(target).cost_shape(  # type: ignore[attr-defined]
        Settings(target=target, budget=1.0, target_option=given), "us-east-1"
    )
    assert isinstance(found, CostShape)
    return found


def quantities(found: CostShape) -> dict[str, float]:
    return {one.item: one.quantity for one in found.fixed}


@pytest.mark.parametrize("target", ["rds-multi-az", "aurora-provisioned", "aurora-serverless", "rds-proxy"])
def test_every_item_of_the_published_targets_has_a_price(target: str) -> None:
    found = shape(target, **(SUBNETS if target == "rds-proxy" else {}))
    prices = Prices()
    assert [item for item in found.items if prices.find(item, "us-east-1") is None] == []
    assert found.target == target


def test_rds_multi_az() -> None:
    assert quantities(shape("rds-multi-az")) == {
        "rds-multi-az/db.r6g.xlarge": 1,
        "rds-multi-az-gp3": 400,
        "public-ipv4": 2,
        "secret": 1,
    }


@pytest.mark.parametrize(
    ("storage", "iops", "paid"), [("400", "12000", None), ("400", "15000", 3000), ("100", "4000", 1000)]
)
def test_iops_beyond_what_gp3_includes_are_paid_for(storage: str, iops: str, paid: float | None) -> None:
    found = quantities(shape("rds-multi-az", storage=storage, iops=iops))
    assert found.get("rds-multi-az-gp3-iops") == paid


def test_aurora() -> None:
    found = shape("aurora-provisioned", **{"class": "db.r6g.2xlarge"})
    assert quantities(found) == {"aurora-instance/db.r6g.2xlarge": 2, "public-ipv4": 2, "secret": 1}
    assert found.io == AuroraIo("us-east-1")
    optimized = shape("aurora-provisioned", cluster_storage="aurora-iopt1")
    assert quantities(optimized)["aurora-instance-iopt/db.r6g.xlarge"] == 2
    assert optimized.io is None


def test_serverless() -> None:
    found = shape("aurora-serverless", min_acu="1", max_acu="8")
    assert found.acu == AcuUse("us-east-1", least=1.0, most=8.0, count=2)
    assert shape("aurora-serverless", cluster_storage="aurora-iopt1").acu == AcuUse(
        "us-east-1", least=4.0, most=32.0, count=2, item="aurora-acu-iopt"
    )


@pytest.mark.parametrize(
    ("options", "item", "quantity"),
    [
        ({}, "rds-proxy", 4),
        ({"class": "db.r6g.large"}, "rds-proxy", 2),
        ({"before": "aurora-provisioned", "class": "db.r6g.4xlarge"}, "rds-proxy", 32),
        ({"before": "aurora-serverless"}, "rds-proxy-acu", 64),
        ({"before": "aurora-serverless", "min-acu": "1", "max-acu": "2"}, "rds-proxy-acu", 16),
    ],
)
def test_a_proxy_is_paid_for_by_its_database(options: dict[str, str], item: str, quantity: float) -> None:
    found = quantities(shape("rds-proxy", **SUBNETS, **options))
    assert found[item] == quantity
    assert "public-ipv4" not in found
