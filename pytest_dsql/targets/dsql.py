"""The target `dsql`: one Aurora DSQL cluster in one Region, created for the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.kinds.dsql_cluster import cluster
from pytest_dsql.aws.policies import CREATING, OURS, Grant
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.targets.created import options_of

if TYPE_CHECKING:
    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

OPTIONS: Final[Mapping[str, str]] = {
    "hostaddr": "numeric address to connect to instead of the host name's: a tunnel's end, or a PrivateLink endpoint's",
    "port": "port there (5432)",
}

_CLUSTERS: Final = "arn:aws:dsql:*:*:cluster/*"
#: Sources: Service Authorization Reference, "Actions, resources, and condition keys for Amazon Aurora DSQL"; botocore's
#: model of CreateCluster and UpdateCluster. The service-linked role is made with an account's first cluster (AWS user
#: guide, "Using service-linked roles in Aurora DSQL").
ACTIONS: Final = (
    Grant(("dsql:CreateCluster", "dsql:TagResource"), (_CLUSTERS,), CREATING),
    Grant(("dsql:UpdateCluster", "dsql:DeleteCluster", "dsql:DbConnectAdmin"), (_CLUSTERS,), OURS),
    Grant(("dsql:GetCluster",), (_CLUSTERS,)),
    Grant(("dsql:ListClusters",)),
    Grant(
        ("iam:CreateServiceLinkedRole",),
        ("arn:aws:iam::*:role/aws-service-role/dsql.amazonaws.com/*",),
        {"StringEquals": {"iam:AWSServiceName": "dsql.amazonaws.com"}},
    ),
)

#: States in which a cluster takes connections: botocore's own waiter knows ACTIVE only. IDLE wakes with the first
#: connection, INACTIVE answers it with "waking up" (AWS user guide, "Aurora DSQL cluster lifecycle").
USABLE: Final = frozenset({"ACTIVE", "IDLE", "INACTIVE", "UPDATING"})
_HOPELESS: Final = frozenset({"FAILED", "DELETING", "DELETED", "PENDING_DELETE"})
#: How long creating and removing took together at most where it was seen: only storage is paid for meanwhile.
COMING_S: Final = 180.0
#: How long a cluster may take: 5 to 32 s were seen for one Region, two minutes for two.
CREATION_LIMIT_S: Final = 900.0


def check(settings: Settings) -> None:
    """See that the address is one."""
    tunnel(settings)


def ask(clients: Clients, _settings: Settings, region: str) -> None:
    """See that the service answers in the Region: a create call would be tried for minutes. Raises AwsError."""
    clients.call("dsql", region, "list_clusters", maxResults=1)


def cost_shape(settings: Settings, region: str) -> CostShape:
    """Return what of the cluster is paid for: DPU and storage."""
    from pytest_dsql.cost.shape import CostShape, DsqlUse

    return CostShape(settings.target, dsql=DsqlUse(region), coming_s=COMING_S)


def open(settings: Settings, run: AwsRun) -> Target:  # noqa: A001 - the word of every target's module
    """Create the cluster, and wait until it answers a query."""
    entry = run.create("dsql-cluster", run.name("dsql"), lambda entry: create_cluster(run, entry, run.region))
    found = wait_until_usable(run, entry)
    return connected(settings, {run.region: endpoint_of(settings, found, run.region)}, run.region)


def tunnel(settings: Settings) -> dict[str, Any]:
    """Return the endpoint's fields that `hostaddr` and `port` set. Raises UsageError."""
    options = options_of(settings)
    fields: dict[str, Any] = {}
    if "hostaddr" in options:
        fields["hostaddr"] = options["hostaddr"]
    if "port" in options:
        text = options["port"]
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 65_535:
            raise UsageError(f"--dsql-target-option port: a number from 1 to 65535, not {text!r}")
        fields["port"] = int(text)
    return fields


def create_cluster(run: AwsRun, entry: Entry, region: str, **properties: Any) -> Made:
    """Call CreateCluster, with deletion protection off: it is on for who doesn't say."""
    made = run.clients.call(
        "dsql",
        region,
        "create_cluster",
        deletionProtectionEnabled=False,
        clientToken=entry.token,
        tags=run.tags(entry),
        **properties,
    )
    return Made(made["arn"], {"identifier": made["identifier"]})


def wait_until_usable(run: AwsRun, entry: Entry, *, limit_s: float = CREATION_LIMIT_S) -> dict[str, Any]:
    """Wait until a cluster takes connections, and return what GetCluster says of it. Raises DsqlError, WaitedInVain."""

    def probe() -> dict[str, Any] | None:
        assert entry.arn is not None
        found = cluster(run.clients, entry.region, entry.arn)
        if found is None:  # not seen everywhere yet; what never comes runs into the limit
            return None
        if found["status"] in _HOPELESS:
            raise DsqlError(f"{entry} is {found['status']}: it will never take connections")
        return found if found["status"] in USABLE and found.get("endpoint") else None

    return run.wait(probe, what=f"{entry} becoming usable", limit_s=limit_s)


def endpoint_of(settings: Settings, found: Mapping[str, Any], region: str) -> Endpoint:
    """Make the endpoint of a cluster from GetCluster's answer."""
    from pytest_dsql.connect.endpoint import Endpoint, IamAuth

    return Endpoint(
        host=str(found["endpoint"]),
        region=region,
        auth=IamAuth(profile=settings.profile, role=settings.role),
        **tunnel(settings),
    )


def connected(settings: Settings, endpoints: Mapping[str, Endpoint], first: str) -> Target:
    """Connect to each endpoint, and return the target. Raises ConnectionFailed, CredentialsError."""
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.attach import ask_who_is_there
    from pytest_dsql.targets.target import Target
    from pytest_dsql.targets.waking import dial_patiently

    facts: dict[str, Any] = {}
    for region, endpoint in endpoints.items():
        with dial_patiently(endpoint, TokenSource(endpoint), new=True) as connection:
            _dialect, said = ask_who_is_there(connection, endpoint)
            facts = said if region == first else facts
    resolved = {region: endpoint.resolved() for region, endpoint in endpoints.items()}
    endpoint = replace(resolved[first], dialect="dsql")
    return Target(name=settings.target, endpoint=endpoint, tokens=TokenSource(endpoint), facts=facts, regions=resolved)
