"""What CloudWatch is asked, against an account in memory: metrics, dimensions, periods."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.cloudwatch import DsqlMeter, acu_minutes, io_periods
from pytest_dsql.cost.shape import AcuUse, AuroraIo, DsqlUse
from tests.cost.metrics import CLUSTER, REGION, START, put, put_dpu

USE = DsqlUse(REGION, CLUSTER)


@pytest.mark.parametrize("dimension", ["ClusterId", "ResourceId"])
def test_the_dpu_of_each_minute_under_either_dimension(clients: Clients, dimension: str) -> None:
    put_dpu(clients, {0: 100.0, 1: 50.0, 4: 10.0}, dimension=dimension)
    put_dpu(clients, {0: 7.0}, cluster="z" * 26)
    meter = DsqlMeter(clients, USE)
    for _ in range(2):  # the second time the dimension is known
        found = meter.minutes(START, START + 600)
        assert {key: total for key, (total, _) in found.items()} == {
            (REGION, START): 100.0,
            (REGION, START + 60): 50.0,
            (REGION, START + 240): 10.0,
        }
        assert astuple(found[REGION, int(START)][1]) == pytest.approx((10, 30, 60, 0))


def test_both_dimensions_are_not_counted_twice(clients: Clients) -> None:
    put_dpu(clients, {0: 100.0})
    put_dpu(clients, {0: 100.0}, dimension="ResourceId")
    assert DsqlMeter(clients, USE).minutes(START, START + 60)[REGION, int(START)][0] == 100.0


def test_several_values_in_a_minute_add_up(clients: Clients) -> None:
    put(clients, "AWS/AuroraDSQL", "TotalDPU", {"ClusterId": CLUSTER}, {START + 1: 2.0, START + 30: 3.0})
    assert DsqlMeter(clients, USE).minutes(START, START + 60)[REGION, int(START)][0] == 5.0


def test_the_clusters_of_several_regions_are_told_apart(clients: Clients) -> None:
    put_dpu(clients, {0: 100.0})
    put_dpu(clients, {0: 60.0}, cluster="q" * 26, region="ap-northeast-1")
    meter = DsqlMeter(clients, DsqlUse(REGION, CLUSTER, peers=(("ap-northeast-1", "q" * 26),)))
    found = meter.minutes(START, START + 60)
    assert {region: total for (region, _), (total, _) in found.items()} == {REGION: 100.0, "ap-northeast-1": 60.0}


def test_nothing_used_and_nothing_to_ask_about(clients: Clients) -> None:
    assert DsqlMeter(clients, USE).minutes(START, START + 60) == {}
    assert DsqlMeter(clients, DsqlUse(REGION)).minutes(START, START + 60) == {}
    assert acu_minutes(clients, AcuUse(REGION, 4, 32, 2), START, START + 60) == {}
    assert io_periods(clients, AuroraIo(REGION), START, START + 60) == {}


def test_the_capacity_of_all_instances(clients: Clients) -> None:
    for name, value in (("writer", 6.5), ("reader", 4.0)):
        values = {START: value, START + 60: value * 2}
        put(clients, "AWS/RDS", "ServerlessDatabaseCapacity", {"DBInstanceIdentifier": name}, values)
    use = AcuUse(REGION, 4, 32, 2, instances=("writer", "reader"))
    assert acu_minutes(clients, use, START, START + 120) == {START: 10.5, START + 60: 21.0}


def test_the_requests_to_the_storage_of_five_minutes(clients: Clients) -> None:
    put(clients, "AWS/RDS", "VolumeReadIOPs", {"DBClusterIdentifier": "c"}, {START: 300.0})
    put(clients, "AWS/RDS", "VolumeWriteIOPs", {"DBClusterIdentifier": "c"}, {START: 900.0, START + 300: 30.0})
    assert io_periods(clients, AuroraIo(REGION, "c"), START + 200, START + 500) == {START: 1200.0, START + 300: 30.0}
