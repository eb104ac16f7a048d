"""The target `dsql-multi-region`: two peered Aurora DSQL clusters and a witness, created for the run.

Sources: AWS user guide, "Configuring multi-Region clusters"; botocore's model of CreateCluster and UpdateCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.kinds.dsql_cluster import cluster
from pytest_dsql.aws.policies import Grant
from pytest_dsql.aws.run import is_region, region_for
from pytest_dsql.errors import UsageError
from pytest_dsql.targets import dsql
from pytest_dsql.targets.created import options_of

if TYPE_CHECKING:
    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

OPTIONS: Final[Mapping[str, str]] = {
    **dsql.OPTIONS,
    "peer": "Region of the second cluster; the first is --dsql-region's",
    "witness": "Region that keeps the transaction log only",
}

ACTIONS: Final = (
    *dsql.ACTIONS,
    Grant(
        (
            "dsql:AddPeerCluster",
            "dsql:RemovePeerCluster",
            "dsql:PutMultiRegionProperties",
            "dsql:PutWitnessRegion",
        ),
        ("arn:aws:dsql:*:*:cluster/*",),
    ),
)

#: Clusters peer within one group of Regions, named here by what their names begin with (AWS Backup's developer guide
#: says so of restoring multi-Region clusters; which Regions are there is the service's to say).
_GROUPS: Final = (("us-", "ca-"), ("eu-",), ("ap-",))


class _Regions(NamedTuple):
    first: str
    peer: str
    witness: str


def check(settings: Settings) -> None:
    """See that three different Regions of one group are named."""
    dsql.check(settings)
    from pytest_dsql.aws.sessions import Clients

    first = region_for(Clients(profile=settings.profile, role=settings.role), settings.region, settings.target)
    _regions(settings, first)


def ask(clients: Clients, settings: Settings, region: str) -> None:
    """See that the service answers where there will be clusters. Raises AwsError."""
    regions = _regions(settings, region)
    for one in (regions.first, regions.peer):
        dsql.ask(clients, settings, one)


def cost_shape(settings: Settings, region: str) -> CostShape:
    """Return what of both clusters is paid for; a witness costs nothing by itself."""
    from pytest_dsql.cost.shape import CostShape, DsqlUse

    peer = _regions(settings, region).peer
    return CostShape(settings.target, dsql=DsqlUse(region, peers=((peer, None),)), coming_s=dsql.COMING_S)


def open(settings: Settings, run: AwsRun) -> Target:  # noqa: A001 - the word of every target's module
    """Create both clusters, peer them, and wait until both answer a query."""
    regions = _regions(settings, run.region)
    witness = {"witnessRegion": regions.witness}
    # The first waits (PENDING_SETUP) until it is told of its peer, which can name the first when it is made.
    first = run.create(
        "dsql-cluster",
        run.name("dsql-first"),
        lambda entry: dsql.create_cluster(run, entry, regions.first, multiRegionProperties=witness),
        region=regions.first,
    )
    peer = run.create(
        "dsql-cluster",
        run.name("dsql-peer"),
        lambda entry: dsql.create_cluster(
            run, entry, regions.peer, multiRegionProperties={**witness, "clusters": [first.arn]}
        ),
        region=regions.peer,
    )
    _tell_of_its_peer(run, first, peer, regions)
    endpoints = {
        entry.region: dsql.endpoint_of(settings, dsql.wait_until_usable(run, entry), entry.region)
        for entry in (first, peer)
    }
    target = dsql.connected(settings, endpoints, regions.first)
    return replace(target, facts={**target.facts, "regions": "+".join(endpoints), "witness": regions.witness})


def _tell_of_its_peer(run: AwsRun, first: Entry, peer: Entry, regions: _Regions) -> None:
    """Peer the first cluster with the second; the service takes that while the first waits for it."""

    def probe() -> bool | None:
        assert first.arn is not None
        found = cluster(run.clients, regions.first, first.arn)
        if found is None or found["status"] == "CREATING":
            return None
        if peer.arn in found.get("multiRegionProperties", {}).get("clusters", ()):
            return True  # told before, by this or another process of the run
        try:
            run.clients.call(
                "dsql",
                regions.first,
                "update_cluster",
                identifier=found["identifier"],
                clientToken=f"{first.token}-peer",
                multiRegionProperties={"witnessRegion": regions.witness, "clusters": [peer.arn]},
            )
        except AwsError as error:
            if error.failure is not Failure.CONFLICT:
                raise
            return None  # not in a state for it yet
        return True

    run.wait(probe, what=f"peering {first} with {peer}", limit_s=dsql.CREATION_LIMIT_S)


def _regions(settings: Settings, first: str) -> _Regions:
    options = options_of(settings)
    missing = [key for key in ("peer", "witness") if key not in options]
    if missing:
        raise UsageError(
            f"target {settings.target!r} needs {' and '.join(f'--dsql-target-option {key}=REGION' for key in missing)}"
        )
    regions = _Regions(first, options["peer"], options["witness"])
    for key in ("peer", "witness"):
        if not is_region(options[key]):
            raise UsageError(f"--dsql-target-option {key}: {options[key]!r} is not an AWS Region such as eu-central-1")
    if len(set(regions)) < len(regions):
        raise UsageError(
            f"target {settings.target!r} is made of three different Regions, not {', '.join(regions)}: two with "
            "clusters, and the witness"
        )
    groups = {next((group for group in _GROUPS if one.startswith(group)), (one,)) for one in regions}
    if len(groups) > 1:
        raise UsageError(
            f"clusters peer within one group of Regions (Americas us- ca-, Europe eu-, Asia Pacific ap-), not over "
            f"{', '.join(regions)}"
        )
    return regions
