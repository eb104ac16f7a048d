"""Aurora DSQL clusters: how one is found again and removed. Source: botocore's `dsql` model (API 2018-05-10)."""

from __future__ import annotations

from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: States in which its removal has begun. PENDING_DELETE: it waits for its peers' removal (multi-Region).
_GOING: Final = ("DELETING", "PENDING_DELETE", "DELETED")


@final
class DsqlCluster:
    """A cluster, alone or one of a multi-Region pair: of one rank, for each waits for the other's removal."""

    kind: Final = "dsql-cluster"
    rank: Final = 50

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its ARN, else by our tags among the Region's clusters."""
        if entry.arn:
            found = cluster(clients, entry.region, entry.arn)
            return entry.arn if found is not None else None
        for one in _all(clients, entry.region):
            tags = tags_of(one.get("tags"))
            if tags.get(RUN_TAG) == entry.run and tags.get("Name") == entry.name:
                return str(one["arn"])
        return None

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Ask for its removal, with deletion protection switched off first where somebody has switched it on."""
        assert entry.arn is not None
        found = cluster(clients, entry.region, entry.arn)
        if found is None or found["status"] in _GOING:
            return
        identifier = found["identifier"]
        if found.get("deletionProtectionEnabled"):
            clients.call("dsql", entry.region, "update_cluster", identifier=identifier, deletionProtectionEnabled=False)
        with not_found_is_fine():
            clients.call("dsql", entry.region, "delete_cluster", identifier=identifier)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when the service knows no such cluster any more."""
        assert entry.arn is not None
        return cluster(clients, entry.region, entry.arn) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All clusters of the Region with our tag."""
        found = []
        for one in _all(clients, region):
            tags = tags_of(one.get("tags"))
            if entry := tagged(self.kind, region, arn=one["arn"], name=tags.get("Name", one["identifier"]), tags=tags):
                found.append(entry)
        return found


def cluster(clients: Clients, region: str, arn: str) -> dict[str, Any] | None:
    """Return what GetCluster says of a cluster, None when there is none (any more). Raises AwsError."""
    try:
        found = clients.call("dsql", region, "get_cluster", identifier=arn.rpartition("/")[2])
    except AwsError as error:
        if error.failure is Failure.NOT_FOUND:
            return None
        raise
    return None if found["status"] == "DELETED" else found


def _all(clients: Clients, region: str) -> list[dict[str, Any]]:
    """ListClusters gives neither tags nor states: each is asked for."""
    listed = clients.pages("dsql", region, "list_clusters", "clusters")
    return [found for one in list(listed) if (found := cluster(clients, region, one["arn"])) is not None]
