"""Machines that make load, and what they need. Source: botocore's `ec2` (2016-11-15) and `iam` (2010-05-08) models."""

from __future__ import annotations

from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.kinds.iam_role import PATH, REGION_TAG
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: A terminated instance is described for about an hour more; it costs nothing and holds nothing.
_THERE: Final = ("pending", "running", "shutting-down", "stopping", "stopped")


@final
class Ec2Instance:
    """An instance with its volumes. A lost answer and a second try can have made two: both have the entry's tags."""

    kind: Final = "ec2-instance"
    rank: Final = 60

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its tags."""
        found = [str(one["InstanceId"]) for one in self._of(clients, entry)]
        return entry.arn if entry.arn in found else next(iter(found), None)

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Terminate all that have the entry's tags."""
        if ids := [one["InstanceId"] for one in self._of(clients, entry)]:
            with not_found_is_fine():
                clients.call("ec2", entry.region, "terminate_instances", InstanceIds=ids)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when all of them are terminated: only then do they let go of their security group."""
        return not self._of(clients, entry)

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All instances of the Region with our tag that are not terminated."""
        found = []
        for one in instances(clients, region, {"tag-key": RUN_TAG}):
            tags, identifier = tags_of(one.get("Tags")), str(one["InstanceId"])
            if entry := tagged(self.kind, region, arn=identifier, name=tags.get("Name", identifier), tags=tags):
                found.append(entry)
        return found

    def _of(self, clients: Clients, entry: Entry) -> list[dict[str, Any]]:
        return instances(clients, entry.region, {f"tag:{RUN_TAG}": entry.run, "tag:Name": entry.name})


def instances(
    clients: Clients, region: str, filters: dict[str, str], *, terminated: bool = False
) -> list[dict[str, Any]]:
    """Return the instances that match; with `terminated` those too that are gone already. Raises AwsError."""
    asked = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    if not terminated:
        asked.append({"Name": "instance-state-name", "Values": list(_THERE)})
    reservations = clients.pages("ec2", region, "describe_instances", "Reservations", Filters=asked)
    return [one for reservation in reservations for one in reservation["Instances"]]


@final
class SecurityGroupRule:
    """A rule in somebody else's security group that lets the generator in; `entry.details` has the group."""

    kind: Final = "security-group-rule"
    rank: Final = 35

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its tags."""
        found = [str(one["SecurityGroupRuleId"]) for one in self._of(clients, entry)]
        return entry.arn if entry.arn in found else next(iter(found), None)

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Revoke it."""
        for one in self._of(clients, entry):
            with not_found_is_fine():
                clients.call(
                    "ec2",
                    entry.region,
                    "revoke_security_group_ingress",
                    GroupId=one["GroupId"],
                    SecurityGroupRuleIds=[one["SecurityGroupRuleId"]],
                )

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when no rule has the entry's tags."""
        return not self._of(clients, entry)

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All rules of the Region with our tag."""
        found = []
        for one in _rules(clients, region, {"tag-key": RUN_TAG}):
            tags, identifier = tags_of(one.get("Tags")), str(one["SecurityGroupRuleId"])
            if entry := tagged(self.kind, region, arn=identifier, name=tags.get("Name", identifier), tags=tags):
                found.append(entry)
        return found

    def _of(self, clients: Clients, entry: Entry) -> list[dict[str, Any]]:
        return _rules(clients, entry.region, {f"tag:{RUN_TAG}": entry.run, "tag:Name": entry.name})


def _rules(clients: Clients, region: str, filters: dict[str, str]) -> list[dict[str, Any]]:
    """Filtered here as well: it is what is revoked."""
    asked = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    found = clients.pages("ec2", region, "describe_security_group_rules", "SecurityGroupRules", Filters=asked)
    return [one for one in list(found) if all(_matches(one, name, value) for name, value in filters.items())]


def _matches(one: dict[str, Any], name: str, value: str) -> bool:
    tags = tags_of(one.get("Tags"))
    return value in tags if name == "tag-key" else tags.get(name.removeprefix("tag:")) == value


@final
class InstanceProfile:
    """What hands a role to an instance. Names are unique in an account."""

    kind: Final = "instance-profile"
    rank: Final = 46

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, when it has our tag."""
        profile = _profile(clients, entry)
        if profile is None or tags_of(profile.get("Tags")).get(RUN_TAG) != entry.run:
            return None
        return str(profile["Arn"])

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Take the role out, then remove it."""
        profile = _profile(clients, entry)
        if profile is None:
            return
        with not_found_is_fine():
            for role in profile["Roles"]:
                with not_found_is_fine():
                    clients.call(
                        "iam",
                        entry.region,
                        "remove_role_from_instance_profile",
                        InstanceProfileName=entry.name,
                        RoleName=role["RoleName"],
                    )
            clients.call("iam", entry.region, "delete_instance_profile", InstanceProfileName=entry.name)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when IAM knows no such profile any more."""
        return _profile(clients, entry) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All our profiles that were made for the Region: the tags are asked of each, lists don't have them."""
        found = []
        for one in list(clients.pages("iam", region, "list_instance_profiles", "InstanceProfiles", PathPrefix=PATH)):
            with not_found_is_fine():
                name = one["InstanceProfileName"]
                profile = clients.call("iam", region, "get_instance_profile", InstanceProfileName=name)
                tags = tags_of(profile["InstanceProfile"].get("Tags"))
                entry = tagged(self.kind, region, arn=one["Arn"], name=name, tags=tags)
                if entry is not None and tags.get(REGION_TAG, region) == region:
                    found.append(entry)
        return found


def _profile(clients: Clients, entry: Entry) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = clients.call(
            "iam", entry.region, "get_instance_profile", InstanceProfileName=entry.name
        )["InstanceProfile"]
    except AwsError as error:
        if error.failure is Failure.NOT_FOUND:
            return None
        raise
    return found
