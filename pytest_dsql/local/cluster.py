"""What the parts of the engine know about a cluster: its names, where its PostgreSQL listens, who may connect."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.limits import DEFAULT, Limits

#: A cluster id is 26 characters of [a-z0-9] (botocore's model of the `dsql` service, shape ClusterId).
CLUSTER_ID_LENGTH: Final = 26
_ALPHABET: Final = string.ascii_lowercase + string.digits

#: The built-in role that maps to `dsql:DbConnectAdmin`, and the one database of a cluster (AWS user guide, "Accessing
#: Aurora DSQL").
ADMIN: Final = "admin"
DATABASE: Final = "postgres"


@dataclass(frozen=True)
class Principal:
    """An identity whose tokens the gateway accepts: an ARN with the keys that sign for it."""

    arn: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass
class Cluster:
    """One cluster of the engine: one PostgreSQL instance behind one host name."""

    id: str  #: 26 characters of [a-z0-9]
    region: str
    socket_path: str  #: PostgreSQL's unix socket file
    principals: tuple[Principal, ...]
    rules: date  #: the dialect's rules of this day hold
    limits: Limits = DEFAULT  #: replaced as a whole when one is changed; ask anew each time
    clock: EngineClock = field(default_factory=EngineClock)

    def __post_init__(self) -> None:
        self.initial_limits = self.limits  #: the limits that the engine was started with

    @property
    def host(self) -> str:
        """The cluster's host name, as DSQL forms it."""
        return f"{self.id}.dsql.{self.region}.on.aws"


def new_cluster_id() -> str:
    """A fresh cluster id."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(CLUSTER_ID_LENGTH))
