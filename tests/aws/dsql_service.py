"""What moto's Aurora DSQL lacks, added to moto: each gap is marked. Runs as a server, with the engine as data plane.

`python -m tests.aws.dsql_service PORT [--engine REGION+REGION]` serves moto on 127.0.0.1; with an
engine, every cluster is one of the engine's, reached by its host name, and the engine's connection facts are printed as
one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from moto.dsql.exceptions import ConflictException, ValidationException
from moto.dsql.models import AuroraDSQLBackend, Cluster, dsql_backends

REGIONS = ["us-east-1", "us-east-2", "ap-northeast-1", "ap-northeast-2"]

#: Host names of a new cluster, by Region: the data plane's.
DataPlane = Callable[[], dict[str, str]]


@contextmanager
def faithful(data_plane: DataPlane | None = None) -> Iterator[None]:
    """Have moto's DSQL do what the service does where moto doesn't."""
    hosts: dict[str, dict[str, str]] = {}  #: by ARN: host names of the data plane's cluster, by Region

    # Gap: endpoints lack `.dsql.`, and identifiers are hexadecimal digits of another length at times.
    def made(self: Cluster, *arguments: Any, **named: Any) -> None:
        real_init(self, *arguments, **named)
        properties = self.multi_region_properties or {}
        shared = next((hosts[arn] for arn in properties.get("clusters", ()) if arn in hosts), None)
        if data_plane is not None:
            shared = shared or data_plane()
            self.endpoint = shared[self.region_name]
            self.identifier = self.endpoint.partition(".")[0]
            self.arn = f"{self.arn.rpartition('/')[0]}/{self.identifier}"
            hosts[self.arn] = shared
        else:
            self.endpoint = f"{self.identifier}.dsql.{self.region_name}.on.aws"
        # Gap: PENDING_SETUP, in which a cluster with a witness waits until both know of each other.
        if properties.get("witnessRegion"):
            self.status = "PENDING_SETUP"
            self._check_witness(properties)  # type: ignore[attr-defined]

    def check_witness(self: Cluster, properties: dict[str, Any]) -> None:
        if properties["witnessRegion"] == self.region_name:
            raise ValidationException("The witness Region cannot be the Region of the cluster.")

    def peers(cluster: Cluster) -> list[Cluster]:
        found = []
        for arn in (cluster.multi_region_properties or {}).get("clusters", ()):
            _arn, _partition, _service, region, account, _name = arn.split(":", 5)
            other = dsql_backends[account][region].clusters.get(arn.rpartition("/")[2])
            if other is not None and other is not cluster:
                found.append(other)
        return found

    # Gap: peering. Both become ACTIVE when each names the other.
    def update_cluster(self: AuroraDSQLBackend, **named: Any) -> Cluster:
        properties = named.get("multi_region_properties")
        if properties is not None and self.get_cluster(named["identifier"]).status not in ("PENDING_SETUP", "ACTIVE"):
            raise ConflictException("The cluster is not in a state for that.", named["identifier"], "cluster")
        cluster: Cluster = real_update(self, **named)
        for one in peers(cluster):
            if cluster in peers(one) and {cluster.status, one.status} == {"PENDING_SETUP"}:
                cluster.status = one.status = "CREATING"
        return cluster

    # Gap: a protected delete is a validation error with a reason. Gap: PENDING_DELETE, until the last peer is deleted.
    def delete_cluster(self: AuroraDSQLBackend, identifier: str) -> Cluster:
        cluster = self.clusters.get(identifier)
        if cluster is not None and cluster.deletion_protection_enabled:
            error = ValidationException("Deletion protection is enabled for this cluster.")
            error.reason = "deletionProtectionEnabled"
            raise error
        if cluster is not None and cluster.status == "PENDING_DELETE":
            return cluster
        deleted = real_delete(self, identifier)
        others = [one for one in peers(deleted) if one.status != "DELETED"]
        if any(one.status != "PENDING_DELETE" for one in others):
            deleted.status = "PENDING_DELETE"
        else:
            for one in others:
                one.status = "DELETING"
        return deleted

    real_init, real_update, real_delete = (
        Cluster.__init__,
        AuroraDSQLBackend.update_cluster,
        AuroraDSQLBackend.delete_cluster,
    )
    with ExitStack() as patches:
        for kind, name, replacement in (
            (Cluster, "__init__", made),
            (AuroraDSQLBackend, "update_cluster", update_cluster),
            (AuroraDSQLBackend, "delete_cluster", delete_cluster),
        ):
            patches.enter_context(patch.object(kind, name, replacement))
        # Gap: DSQL is in two Regions only.
        patches.enter_context(patch.object(dsql_backends, "_additional_regions", REGIONS))
        patches.enter_context(patch.object(Cluster, "_check_witness", check_witness, create=True))
        yield


def main() -> None:
    """Serve until terminated."""
    from moto.server import main as serve

    port, *options = sys.argv[1:]
    with ExitStack() as stack:
        data_plane = None
        if "--engine" in options:
            regions = options[options.index("--engine") + 1]
            data_plane = stack.enter_context(engine(regions))
        stack.enter_context(faithful(data_plane))
        serve(["-H", "127.0.0.1", "-p", port])


@contextmanager
def engine(regions: str) -> Iterator[DataPlane]:
    """Start an embedded engine in these Regions (joined by `+`), and say how to reach it."""
    from pytest_dsql.local.client import Engine
    from pytest_dsql.local.options import EngineOptions

    options = EngineOptions().with_settings({"regions": regions} if "+" in regions else {"region": regions})
    with Engine.start_or_attach(options=options) as running:
        facts = {
            "port": running.port,
            "ca_file": str(running.ca_file),
            "access_key_id": running.credentials.access_key_id,
            "secret_access_key": running.credentials.secret_access_key,
        }
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
        yield lambda: {one.region: one.host for one in running.new_cluster().endpoints}


if __name__ == "__main__":
    main()
