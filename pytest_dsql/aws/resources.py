"""What can be created, and how each kind is found again and removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from typing import Any, Final, Protocol, cast

from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.errors import UsageError

#: The tags of everything that a run creates: whose it is, since when, and until when it may exist.
RUN_TAG: Final = "pytest-dsql:run"
CREATED_TAG: Final = "pytest-dsql:created"
EXPIRES_TAG: Final = "pytest-dsql:expires"

#: kind -> the class that knows it. A kind that isn't listed is such a path itself: `mypackage.mymodule:MyResource`.
KINDS: Final[Mapping[str, str]] = {
    "dsql-cluster": "pytest_dsql.aws.kinds.dsql_cluster:DsqlCluster",
    "vpc": "pytest_dsql.aws.kinds.network:Vpc",
    "subnet": "pytest_dsql.aws.kinds.network:Subnet",
    "internet-gateway": "pytest_dsql.aws.kinds.network:InternetGateway",
    "security-group": "pytest_dsql.aws.kinds.network:SecurityGroup",
    "db-subnet-group": "pytest_dsql.aws.kinds.rds:DbSubnetGroup",
    "db-parameter-group": "pytest_dsql.aws.kinds.rds:DbParameterGroup",
    "db-cluster-parameter-group": "pytest_dsql.aws.kinds.rds:DbClusterParameterGroup",
    "db-cluster": "pytest_dsql.aws.kinds.rds:DbCluster",
    "db-instance": "pytest_dsql.aws.kinds.rds:DbInstance",
    "db-proxy": "pytest_dsql.aws.kinds.rds:DbProxy",
    "iam-role": "pytest_dsql.aws.kinds.iam_role:IamRole",
    "ec2-instance": "pytest_dsql.aws.kinds.compute:Ec2Instance",
    "security-group-rule": "pytest_dsql.aws.kinds.compute:SecurityGroupRule",
    "instance-profile": "pytest_dsql.aws.kinds.compute:InstanceProfile",
    "s3-bucket": "pytest_dsql.aws.kinds.s3_bucket:S3Bucket",
    "lambda-function": "pytest_dsql.aws.kinds.serverless:LambdaFunction",
    "state-machine": "pytest_dsql.aws.kinds.serverless:StateMachine",
}

#: Kinds of what is in a network, which can't go before them.
IN_A_NETWORK: Final = frozenset(
    {
        "security-group",
        "security-group-rule",
        "db-subnet-group",
        "db-cluster",
        "db-instance",
        "db-proxy",
        "ec2-instance",
    }
)


class Resource(Protocol):
    """One kind of thing that costs money or is in the way. Instances have no state; methods raise AwsError.

    An entry names it by `arn` once the service has told that, else by `name` alone, when the answer to the create call
    was lost. Nothing without our tag of the entry's run is ever found, and so never removed.
    """

    @property
    def kind(self) -> str:
        """The name under which inventories know it."""

    @property
    def rank(self) -> int:
        """Removal goes from high ranks to low ones, equal ranks together; below what depends on it."""

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """Return its ARN or id when it exists (however far its creation or removal got) and has our tag; else None."""

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Ask for its removal; `entry.arn` is set. Asking again, also when it is gone, is no error."""

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Tell whether it is gone altogether: it costs nothing, and nothing that it needed is held by it."""

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """Return everything of this kind in a Region that has the tag `pytest-dsql:run`: see `tagged`."""


def resource(kind: str) -> Resource:
    """Return what knows a kind. Raises UsageError for an unknown one."""
    path = KINDS.get(kind, kind)
    module, separator, name = path.partition(":")
    if not separator:
        raise UsageError(f"no kind of resource is called {kind!r}; known: {', '.join(KINDS)}")
    try:
        return cast(Resource, getattr(import_module(module), name)())
    except (ImportError, AttributeError) as error:
        raise UsageError(f"can't load the resource {path}: {error}") from None


def tags_of(pairs: Mapping[str, str] | list[dict[str, Any]] | None) -> dict[str, str]:
    """Return tags as a mapping, from any of the shapes in which AWS's APIs give them."""
    if pairs is None:
        return {}
    if isinstance(pairs, Mapping):
        return {str(key): str(value) for key, value in pairs.items()}
    return {str(one.get("Key", one.get("key"))): str(one.get("Value", one.get("value"))) for one in pairs}


def tagged(kind: str, region: str, *, arn: str, name: str, tags: Mapping[str, str]) -> Entry | None:
    """Make an entry of what was found in an account; None for what isn't ours."""
    run = tags.get(RUN_TAG)
    if not run:
        return None
    details = {"expires": tags[EXPIRES_TAG]} if EXPIRES_TAG in tags else {}
    try:
        created = datetime.fromisoformat(tags.get(CREATED_TAG, ""))
    except ValueError:
        created = datetime.min
    return Entry(
        run=run,
        number=0,
        kind=kind,
        region=region,
        name=name,
        token="",
        owner="",
        intended_at=created,
        arn=arn,
        details=details,
    )
