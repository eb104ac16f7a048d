"""Roles of IAM: names are unique in an account, and there are no client tokens. Source: botocore's `iam` model."""

from __future__ import annotations

from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: The path of all our roles: by it they are listed, and a policy can name them.
PATH: Final = "/pytest-dsql/"
#: IAM knows no Regions; this tag says for which one a role was made, so that `scan` counts it once.
REGION_TAG: Final = "pytest-dsql:region"


@final
class IamRole:
    """A role, with the policies that are written into it."""

    kind: Final = "iam-role"
    rank: Final = 45

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, when it has our tag."""
        role = _role(clients, entry)
        if role is None or tags_of(role.get("Tags")).get(RUN_TAG) != entry.run:
            return None
        return str(role["Arn"])

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Remove its policies, then the role."""
        region, name = entry.region, entry.name
        with not_found_is_fine():
            for policy in list(clients.pages("iam", region, "list_role_policies", "PolicyNames", RoleName=name)):
                with not_found_is_fine():
                    clients.call("iam", region, "delete_role_policy", RoleName=name, PolicyName=policy)
            attached = clients.pages("iam", region, "list_attached_role_policies", "AttachedPolicies", RoleName=name)
            for one in list(attached):
                with not_found_is_fine():
                    clients.call("iam", region, "detach_role_policy", RoleName=name, PolicyArn=one["PolicyArn"])
            clients.call("iam", region, "delete_role", RoleName=name)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when IAM knows no such role any more."""
        return _role(clients, entry) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All our roles that were made for the Region."""
        found = []
        for one in list(clients.pages("iam", region, "list_roles", "Roles", PathPrefix=PATH)):
            with not_found_is_fine():
                tags = tags_of(list(clients.pages("iam", region, "list_role_tags", "Tags", RoleName=one["RoleName"])))
                entry = tagged(self.kind, region, arn=one["Arn"], name=one["RoleName"], tags=tags)
                if entry is not None and tags.get(REGION_TAG, region) == region:
                    found.append(entry)
        return found


def _role(clients: Clients, entry: Entry) -> dict[str, Any] | None:
    try:
        role: dict[str, Any] = clients.call("iam", entry.region, "get_role", RoleName=entry.name)["Role"]
    except AwsError as error:
        if error.failure is Failure.NOT_FOUND:
            return None
        raise
    return role
