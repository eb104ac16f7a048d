"""The network of a database: VPC, subnets, internet gateway, security group. Source: botocore's `ec2` model.

EC2 has neither client tokens nor unique names for them: an answer that was lost may have made one, and the next try a
second one. So they are known by their tags, and all that have the tags of an entry are found and removed together.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients


class _OfEc2:
    """What EC2's kinds have in common: descriptions with filters by tag."""

    kind: ClassVar[str]
    rank: ClassVar[int]
    #: The operation that describes them, the key of its items, and the key of an item's id.
    _describe: ClassVar[tuple[str, str, str]]

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its tags; the one whose id is known, when several have them."""
        found = [self._id(one) for one in self._matching(clients, entry)]
        return entry.arn if entry.arn in found else next(iter(found), None)

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Remove all that have the entry's tags."""
        for one in self._matching(clients, entry):
            with not_found_is_fine():
                self._remove(clients, entry.region, one)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when nothing has the entry's tags."""
        return not self._matching(clients, entry)

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All of this kind in the Region with our tag."""
        found = []
        for one in self._described(clients, region, {"tag-key": RUN_TAG}):
            tags = tags_of(one.get("Tags"))
            name = tags.get("Name", self._id(one))
            if entry := tagged(self.kind, region, arn=self._id(one), name=name, tags=tags):
                found.append(entry)
        return found

    def _matching(self, clients: Clients, entry: Entry) -> list[dict[str, Any]]:
        return self._described(clients, entry.region, {f"tag:{RUN_TAG}": entry.run, "tag:Name": entry.name})

    def _described(self, clients: Clients, region: str, filters: dict[str, str]) -> list[dict[str, Any]]:
        operation, key, _id = self._describe
        asked = [{"Name": name, "Values": [value]} for name, value in filters.items()]
        return list(clients.pages("ec2", region, operation, key, Filters=asked))

    def _id(self, one: dict[str, Any]) -> str:
        return str(one[self._describe[2]])

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        raise NotImplementedError


@final
class Vpc(_OfEc2):
    """A VPC, with its own route table, network ACL and default security group."""

    kind = "vpc"
    rank = 10
    _describe = ("describe_vpcs", "Vpcs", "VpcId")

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        clients.call("ec2", region, "delete_vpc", VpcId=self._id(one))


@final
class Subnet(_OfEc2):
    """A subnet in one zone."""

    kind = "subnet"
    rank = 20
    _describe = ("describe_subnets", "Subnets", "SubnetId")

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        clients.call("ec2", region, "delete_subnet", SubnetId=self._id(one))


@final
class InternetGateway(_OfEc2):
    """The way into a VPC from outside."""

    kind = "internet-gateway"
    rank = 20
    _describe = ("describe_internet_gateways", "InternetGateways", "InternetGatewayId")

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        for attachment in one.get("Attachments") or ():
            try:
                clients.call(
                    "ec2",
                    region,
                    "detach_internet_gateway",
                    InternetGatewayId=self._id(one),
                    VpcId=attachment["VpcId"],
                )
            except AwsError as error:
                # Detached meanwhile: an earlier try did it.
                if error.failure is not Failure.NOT_FOUND and error.code != "Gateway.NotAttached":
                    raise
        clients.call("ec2", region, "delete_internet_gateway", InternetGatewayId=self._id(one))


@final
class SecurityGroup(_OfEc2):
    """Who may connect; its rules go with it."""

    kind = "security-group"
    rank = 30
    _describe = ("describe_security_groups", "SecurityGroups", "GroupId")

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        clients.call("ec2", region, "delete_security_group", GroupId=self._id(one))
