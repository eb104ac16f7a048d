"""The network of a database: an existing one, or one made for the databases of a run, open to the load's address alone.

Sources: EC2 API reference; RDS user guide, "Working with a DB instance in a VPC": a publicly accessible database needs
subnets in two zones, a route to an internet gateway, and DNS host names in its VPC.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.errors import UsageError
from pytest_dsql.targets.rds import whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.targets.rds.options import RdsOptions

PORT: Final = 5432
#: Room for the databases of a run in each of up to eight zones; nothing else is ever in it.
_VPC: Final = ipaddress.IPv4Network("10.0.0.0/24")
_SUBNET_BITS: Final = 27
#: How long a step may have to be repeated until what an earlier one made is seen everywhere.
_STEP_S: Final = 120.0
#: What was just made may be "not found" for a while (EC2 developer guide, "Eventual consistency").
SETTLES: Final = frozenset({Failure.NOT_FOUND})


@final
@dataclass(frozen=True, slots=True)
class Network:
    """Where a database is put. Names and ids as RDS's create calls take them."""

    subnet_group: str
    security_group: str
    subnets: tuple[str, ...]
    zones: tuple[str, ...]  #: that have the class
    public: bool


def network_for(run: AwsRun, options: RdsOptions, zones: tuple[str, ...]) -> Network:
    """Find the network that the options name, or make one. `zones` are those to use, the first two in a new network.

    Raises UsageError when an existing one doesn't fit, AwsError.
    """
    vpc, subnets = "", dict[str, str]()
    if options.subnet_group is not None:
        vpc, subnets = _of_group(run, options.subnet_group)
    elif options.subnets:
        vpc, subnets = _existing(run, options.subnets)
    usable = [zone for zone in dict.fromkeys(subnets.values()) if zone in zones]
    if not options.creates_network and len(usable) < 2:
        raise UsageError(
            f"the subnets that you named are in {', '.join(sorted(set(subnets.values())))}; a database needs two zones "
            f"that have its class: {', '.join(zones)}"
        )
    # Asked before anything is made.
    allowed = () if options.security_group is not None else _allowed(run, options, vpc)
    if options.creates_network:
        usable = list(options.zones or zones[:2])
        vpc, subnets = _made(run, tuple(usable))
    return Network(
        subnet_group=options.subnet_group or _subnet_group(run, tuple(subnets)),
        security_group=options.security_group or _security_group(run, vpc, allowed),
        subnets=tuple(subnets),
        zones=tuple(usable),
        public=options.is_public,
    )


def open_to_itself(run: AwsRun, security_group: str) -> None:
    """Let members of the group, such as a proxy, connect to each other."""
    _rule(run, security_group, {"UserIdGroupPairs": [{"GroupId": security_group}]})


def _made(run: AwsRun, zones: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Make a VPC with a subnet in each zone and a way in; return its id, and the zone of each subnet.

    All targets of a run share it, each with the zones that it needs: an account has five VPCs in a Region by default.
    """
    with run.inventory.alone(f"network-{run.region}"):
        return _made_alone(run.shared(), zones)


def _made_alone(run: AwsRun, zones: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    vpc = _made_once(
        run,
        "vpc",
        "net",
        lambda _entry, tags: run.clients.call(
            "ec2", run.region, "create_vpc", CidrBlock=str(_VPC), TagSpecifications=tags
        )["Vpc"]["VpcId"],
    )
    subnets: dict[str, str] = {}
    for zone in zones:
        subnet = _made_once(
            run,
            "subnet",
            f"net-{zone.removeprefix(run.region)}",
            lambda entry, tags, zone=zone: run.clients.call(  # type: ignore[misc]
                "ec2",
                run.region,
                "create_subnet",
                VpcId=vpc,
                AvailabilityZone=zone,
                CidrBlock=entry.details["block"],
                TagSpecifications=tags,
            )["Subnet"]["SubnetId"],
            block=_free_block(run),
        )
        subnets[subnet] = zone
    whole = f"network in {run.region}"
    if run.inventory.noted(whole) != vpc:
        _open_to_the_internet(run, vpc)
        run.inventory.note(whole, vpc)
    return vpc, subnets


def _open_to_the_internet(run: AwsRun, vpc: str) -> None:
    """Give a VPC host names and a way in."""
    _step(
        run,
        "switching on DNS host names",
        lambda: run.clients.call(
            "ec2", run.region, "modify_vpc_attribute", VpcId=vpc, EnableDnsHostnames={"Value": True}
        ),
    )
    gateway = _made_once(
        run,
        "internet-gateway",
        "net",
        lambda _entry, tags: run.clients.call("ec2", run.region, "create_internet_gateway", TagSpecifications=tags)[
            "InternetGateway"
        ]["InternetGatewayId"],
    )
    _step(
        run,
        "attaching the internet gateway",
        lambda: run.clients.call("ec2", run.region, "attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc),
        done_when="Resource.AlreadyAssociated",
    )
    _step(run, "making the route", lambda: _route(run, vpc, gateway), done_when="RouteAlreadyExists")


def _free_block(run: AwsRun) -> str:
    """Return the next block of addresses for a subnet; the entries of the others say which are taken."""
    taken = {one.details.get("block") for one in run.inventory.entries if one.region == run.region}
    blocks = (str(one) for one in _VPC.subnets(new_prefix=_SUBNET_BITS))
    free = next((one for one in blocks if one not in taken), None)
    if free is None:
        raise UsageError(f"the databases of this run are in more zones of {run.region} than its network has room for")
    return free


def _route(run: AwsRun, vpc: str, gateway: str) -> None:
    """Lead the VPC's own route table, which all its subnets use, to the gateway; it goes with the VPC."""
    tables = run.clients.call(
        "ec2",
        run.region,
        "describe_route_tables",
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}],
    )["RouteTables"]
    if not tables:
        raise AwsError(
            f"the route table of the new VPC in {run.region} is not there yet",
            failure=Failure.NOT_FOUND,
            code="RouteTable.NotFound",
            action="ec2:DescribeRouteTables",
            region=run.region,
        )
    run.clients.call(
        "ec2",
        run.region,
        "create_route",
        RouteTableId=tables[0]["RouteTableId"],
        DestinationCidrBlock="0.0.0.0/0",
        GatewayId=gateway,
    )


def _security_group(run: AwsRun, vpc: str, allowed: tuple[str, ...]) -> str:
    name = run.name(run.owner)
    group = _made_once(
        run,
        "security-group",
        "net",
        lambda _entry, tags: run.clients.call(
            "ec2",
            run.region,
            "create_security_group",
            GroupName=name,
            Description="Who may connect to a database of pytest-dsql",
            VpcId=vpc,
            TagSpecifications=tags,
        )["GroupId"],
    )
    _rule(
        run,
        group,
        {"IpRanges": [{"CidrIp": network, "Description": "the load generator"} for network in allowed]},
    )
    return group


def _rule(run: AwsRun, group: str, source: dict[str, Any]) -> None:
    _step(
        run,
        "letting the load generator in",
        lambda: run.clients.call(
            "ec2",
            run.region,
            "authorize_security_group_ingress",
            GroupId=group,
            IpPermissions=[{"IpProtocol": "tcp", "FromPort": PORT, "ToPort": PORT, **source}],
        ),
        done_when="InvalidPermission.Duplicate",
    )


def _subnet_group(run: AwsRun, subnets: tuple[str, ...]) -> str:
    name = run.name(run.owner)
    run.create_by(
        "rds",
        "create_db_subnet_group",
        "db-subnet-group",
        name,
        lambda _entry: {
            "DBSubnetGroupName": name,
            "DBSubnetGroupDescription": "Subnets of a database of pytest-dsql",
            "SubnetIds": list(subnets),
            "Tags": run.tag_list(),
        },
        ("DBSubnetGroup", "DBSubnetGroupArn"),
        again_on=SETTLES,
    )
    return name


def _existing(run: AwsRun, subnets: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    answer = run.clients.call("ec2", run.region, "describe_subnets", SubnetIds=list(subnets))
    found = {one["SubnetId"]: (one["VpcId"], one["AvailabilityZone"]) for one in answer["Subnets"]}
    if len({vpc for vpc, _zone in found.values()}) != 1:
        raise UsageError("--dsql-target-option subnets: they are in different VPCs")
    return found[subnets[0]][0], {subnet: found[subnet][1] for subnet in subnets}


def _of_group(run: AwsRun, name: str) -> tuple[str, dict[str, str]]:
    answer = run.clients.call("rds", run.region, "describe_db_subnet_groups", DBSubnetGroupName=name)
    group = answer["DBSubnetGroups"][0]
    return str(group["VpcId"]), {
        one["SubnetIdentifier"]: one["SubnetAvailabilityZone"]["Name"] for one in group["Subnets"]
    }


def _allowed(run: AwsRun, options: RdsOptions, vpc: str) -> tuple[str, ...]:
    """Return the networks that may connect: the option's, else this host's address as the database will see it."""
    if options.generator:
        return options.generator
    if options.is_public:
        return (f"{whereabouts.public_address()}/32",)
    address = ipaddress.IPv4Address(whereabouts.local_address())
    answer = run.clients.call("ec2", run.region, "describe_vpcs", VpcIds=[vpc])
    blocks = [one["CidrBlock"] for one in answer["Vpcs"][0]["CidrBlockAssociationSet"]]
    if not any(address in ipaddress.IPv4Network(block) for block in blocks):
        raise UsageError(
            f"this host's address {address} is not in the VPC of those subnets ({', '.join(blocks)}): say from where "
            "the load will come, --dsql-target-option generator=ADDRESS, or public=yes"
        )
    return (f"{address}/32",)


def _made_once(
    run: AwsRun, kind: str, what: str, call: Callable[[Entry, list[dict[str, Any]]], str], **details: Any
) -> str:
    """Create one thing of EC2's, which has neither client tokens nor names of its own: an earlier try is looked for."""
    from pytest_dsql.aws.resources import resource

    def attempt(entry: Entry) -> Made:
        if found := resource(kind).find(run.clients, entry):
            return Made(found)
        return Made(call(entry, [{"ResourceType": kind, "Tags": run.tag_list(entry)}]))

    entry = run.create(kind, run.name(f"{run.owner}-{what}"), attempt, again_on=SETTLES, **details)
    assert entry.arn is not None
    return entry.arn


def _step(run: AwsRun, what: str, call: Callable[[], object], *, done_when: str = "") -> None:
    """Make a call that may be repeated; `done_when` is the error's code that says it was carried out already."""

    def attempt() -> bool:
        try:
            call()
        except AwsError as error:
            if not done_when or error.code != done_when:
                raise
        return True

    run.wait(attempt, what=what, limit_s=_STEP_S)
