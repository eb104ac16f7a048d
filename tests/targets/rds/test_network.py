"""The network: made with a way in for the load generator alone, or an existing one."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.aws.reaper import reap
from pytest_dsql.errors import UsageError
from pytest_dsql.targets.rds import whereabouts
from pytest_dsql.targets.rds.network import network_for, open_to_itself
from pytest_dsql.targets.rds.options import RdsOptions
from tests.aws.clusters import Hours
from tests.targets.rds.account import contents, ec2_of
from tests.targets.rds.conftest import REGION, RUN_ID, begin
from tests.targets.rds.interference import interfering, refusal

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
OPEN = RdsOptions(generator=("203.0.113.7/32", "198.51.100.0/24"))


@pytest.fixture
def yours(account: None) -> dict[str, Any]:
    """A VPC of the user's, with two subnets."""
    ec2 = ec2_of(REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for number, zone in enumerate(ZONES[:2])
    ]
    return {"vpc": vpc, "subnets": tuple(subnets)}


def test_a_network_is_made_that_is_reached_from_outside(account: None) -> None:
    network = network_for(begin("rds-multi-az"), OPEN, ZONES)
    made = contents()
    assert {kind: len(names) for kind, names in made.items()} == {
        "vpcs": 1,
        "subnets": 2,
        "gateways": 1,
        "security groups": 1,
        "subnet groups": 1,
    }
    assert (network.zones, network.public) == (ZONES[:2], True)
    ec2 = ec2_of(REGION)
    [vpc] = made["vpcs"]
    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"]["Value"]
    [table] = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    assert (made["gateways"][0], "0.0.0.0/0") in [
        (one.get("GatewayId"), one.get("DestinationCidrBlock")) for one in table["Routes"]
    ]
    assert begin("rds-multi-az").remove().remaining == []
    assert contents() == {}


def test_databases_of_a_run_share_a_network_that_goes_with_the_last_of_them(account: None) -> None:
    """Each with the zones that it needs, and with a security group and a subnet group of its own."""
    first, second = begin("rds-multi-az"), begin("aurora-serverless")
    one, other = network_for(first, OPEN, ZONES), network_for(second, OPEN, ZONES[1:])
    made = contents()
    assert {kind: len(names) for kind, names in made.items()} == {
        "vpcs": 1,
        "subnets": 3,
        "gateways": 1,
        "security groups": 2,
        "subnet groups": 2,
    }
    assert (one.zones, other.zones) == (ZONES[:2], ZONES[1:])
    assert set(one.subnets) & set(other.subnets) != set()
    assert one.security_group != other.security_group
    blocks = [subnet["CidrBlock"] for subnet in ec2_of(REGION).describe_subnets(SubnetIds=made["subnets"])["Subnets"]]
    assert sorted(blocks) == ["10.0.0.0/27", "10.0.0.32/27", "10.0.0.64/27"]
    assert first.remove().remaining == []
    assert contents()["vpcs"] == made["vpcs"], "the other one is in it"
    first.close()
    assert second.remove().remaining == []
    assert contents() == {}


def test_another_process_that_uses_the_network_keeps_it(account: None) -> None:
    here, there = begin("rds-multi-az"), begin("rds-multi-az")
    network_for(here, OPEN, ZONES)
    network_for(there, OPEN, ZONES)
    assert here.remove().remaining == []
    assert len(contents()["vpcs"]) == 1
    here.close()
    assert there.remove().remaining == []
    assert contents() == {}


def test_a_kept_database_keeps_its_network(account: None) -> None:
    kept, other = begin("rds-multi-az"), begin("aurora-serverless")
    network_for(kept, OPEN, ZONES)
    network_for(other, OPEN, ZONES)
    kept.keep()
    kept.close()
    assert other.remove().remaining == []
    other.close()
    assert {kind: len(names) for kind, names in contents().items()} == {
        "vpcs": 1,
        "subnets": 2,
        "gateways": 1,
        "security groups": 1,
        "subnet groups": 1,
    }
    assert reap(clock=Hours().clock()).removed == []
    assert reap(run=RUN_ID, clock=Hours().clock()).remaining == []
    assert contents() == {}


def test_what_could_not_be_removed_from_a_network_is_not_waited_for_twice(
    account: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, other = begin("rds-multi-az"), begin("aurora-serverless")
    network_for(failing, OPEN, ZONES)
    network_for(other, OPEN, ZONES)
    with interfering(before=lambda _service, what: refusal("AccessDenied") if what == "DeleteDBSubnetGroup" else None):
        run = begin("rds-multi-az")
        [(left, _why)] = run.remove().remaining
    assert left.kind == "db-subnet-group"
    for one in (failing, run):
        one.close()
    clock = Hours()
    other.clock = clock.clock()
    before = clock.at
    assert other.remove().remaining == []
    assert clock.at - before < timedelta(minutes=5)
    assert len(contents()["vpcs"]) == 1
    other.close()
    assert reap(clock=Hours().clock()).remaining == []
    assert contents() == {}


def test_only_the_generator_is_let_in(account: None) -> None:
    network = network_for(begin("rds-multi-az"), OPEN, ZONES)
    [group] = ec2_of(REGION).describe_security_groups(GroupIds=[network.security_group])["SecurityGroups"]
    [rule] = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 5432, 5432)
    assert [one["CidrIp"] for one in rule["IpRanges"]] == ["203.0.113.7/32", "198.51.100.0/24"]
    assert (rule["UserIdGroupPairs"], rule.get("Ipv6Ranges", [])) == ([], [])


def test_made_again_it_is_the_same(account: None) -> None:
    first = network_for(begin("rds-multi-az"), OPEN, ZONES)
    before = contents()
    assert network_for(begin("rds-multi-az"), OPEN, ZONES) == first
    assert contents() == before


def test_subnets_of_yours_are_used_and_left(yours: dict[str, Any]) -> None:
    before = contents()
    network = network_for(
        begin("rds-multi-az"), RdsOptions(subnets=yours["subnets"], generator=("10.9.0.7/32",)), ZONES
    )
    assert (network.subnets, network.public, network.zones) == (yours["subnets"], False, ZONES[:2])
    assert set(contents()) - set(before) == {"security groups", "subnet groups"}
    assert begin("rds-multi-az").remove().remaining == []
    assert contents() == before


def test_a_subnet_group_and_a_security_group_of_yours_are_used_and_left(yours: dict[str, Any]) -> None:
    rds, ec2 = boto3.client("rds", region_name=REGION), ec2_of(REGION)
    rds.create_db_subnet_group(
        DBSubnetGroupName="mine", DBSubnetGroupDescription="mine", SubnetIds=list(yours["subnets"])
    )
    mine = ec2.create_security_group(GroupName="mine", Description="mine", VpcId=yours["vpc"])["GroupId"]
    before = contents()
    network = network_for(begin("rds-multi-az"), RdsOptions(subnet_group="mine", security_group=mine), ZONES)
    assert (network.subnet_group, network.security_group) == ("mine", mine)
    assert contents() == before


@pytest.mark.parametrize(("address", "fits"), [("10.9.0.7", True), ("192.168.1.5", False)])
def test_a_private_database_lets_in_this_hosts_own_address(
    yours: dict[str, Any], address: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "local_address", lambda: address)
    options = RdsOptions(subnets=yours["subnets"])
    if not fits:
        before = contents()
        with pytest.raises(UsageError, match="not in the VPC of those subnets"):
            network_for(begin("rds-multi-az"), options, ZONES)
        assert contents() == before
        return
    network = network_for(begin("rds-multi-az"), options, ZONES)
    [group] = ec2_of(REGION).describe_security_groups(GroupIds=[network.security_group])["SecurityGroups"]
    assert group["IpPermissions"][0]["IpRanges"][0]["CidrIp"] == f"{address}/32"


def test_subnets_in_one_zone_are_refused_before_anything_is_made(yours: dict[str, Any]) -> None:
    before = contents()
    with pytest.raises(UsageError, match="a database needs two zones that have its class: us-east-1b, us-east-1c"):
        network_for(begin("rds-multi-az"), RdsOptions(subnets=yours["subnets"]), ZONES[1:])
    assert contents() == before


def test_a_subnet_that_is_not_there_is_said(account: None) -> None:
    with pytest.raises(AwsError, match=r"ec2:DescribeSubnets in us-east-1: InvalidSubnetID.NotFound"):
        network_for(begin("rds-multi-az"), RdsOptions(subnets=("subnet-0", "subnet-1")), ZONES)


def test_a_proxys_group_lets_in_its_own_members(account: None) -> None:
    run = begin("rds-proxy")
    network = network_for(run, OPEN, ZONES)
    open_to_itself(run, network.security_group)
    open_to_itself(run, network.security_group)
    [group] = ec2_of(REGION).describe_security_groups(GroupIds=[network.security_group])["SecurityGroups"]
    pairs = [one["GroupId"] for rule in group["IpPermissions"] for one in rule["UserIdGroupPairs"]]
    assert pairs == [network.security_group]


def test_what_a_lost_answer_has_made_twice_is_removed_altogether(account: None) -> None:
    """EC2 has no client tokens for networks: boto3 itself repeats a call whose answer was lost."""
    run = begin("rds-multi-az")
    network_for(run, OPEN, ZONES)
    ec2 = ec2_of(REGION)
    for kind, made in (("vpc", "vpcs"), ("internet-gateway", "gateways")):
        [name] = contents()[made]
        tags = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [name]}])["Tags"]
        again = [{"ResourceType": kind, "Tags": [{"Key": one["Key"], "Value": one["Value"]} for one in tags]}]
        if kind == "vpc":
            ec2.create_vpc(CidrBlock="10.0.0.0/24", TagSpecifications=again)
        else:
            ec2.create_internet_gateway(TagSpecifications=again)
    assert run.remove().remaining == []
    assert contents() == {}


@pytest.fixture
def page() -> Iterator[tuple[str, list[bytes]]]:
    """A page on this machine that answers with what the list holds."""
    answers: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[0])

        def log_message(self, *_args: object) -> None:
            pass

    served = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_port}/", answers
    finally:
        served.shutdown()
        thread.join()
        served.server_close()


def test_the_public_address_is_what_the_page_says(page: tuple[str, list[bytes]]) -> None:
    address, answers = page
    answers.append(b"203.0.113.9\n")
    assert whereabouts.public_address(address) == "203.0.113.9"


@pytest.mark.parametrize("answer", [b"<html>", b"2001:db8::1", b""])
def test_a_page_without_an_address_is_said(page: tuple[str, list[bytes]], answer: bytes) -> None:
    address, answers = page
    answers.append(answer)
    with pytest.raises(UsageError, match="no IPv4 address: name it with --dsql-target-option generator=ADDRESS"):
        whereabouts.public_address(address)


def test_a_page_that_does_not_answer_is_said() -> None:
    with pytest.raises(UsageError, match="could not be asked"):
        whereabouts.public_address("http://127.0.0.1:1/")


def test_the_local_address_is_one() -> None:
    assert whereabouts.local_address().count(".") == 3
