"""What the parts of the engine know about a cluster: its names, where its PostgreSQL listens, who may connect."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pytest_dsql.local.bell import Bell
from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.limits import DEFAULT, Limits
from pytest_dsql.local.quotas import Quotas

if TYPE_CHECKING:
    from pytest_dsql.local.dpu.meter import Meter
    from pytest_dsql.local.faults.injector import Faults
    from pytest_dsql.local.latency.control import Latency
    from pytest_dsql.local.roles import Trust
    from pytest_dsql.local.trouble import Trouble

#: A cluster id is 26 characters of [a-z0-9] (botocore's model of the `dsql` service, shape ClusterId).
CLUSTER_ID_LENGTH: Final = 26
_ALPHABET: Final = string.ascii_lowercase + string.digits

#: The built-in role that maps to `dsql:DbConnectAdmin`, and the one database of a cluster (AWS user guide, "Accessing
#: Aurora DSQL").
ADMIN: Final = "admin"
DATABASE: Final = "postgres"


#: Nobody's account: the engine's clusters and principals are no real ones.
ACCOUNT_ID: Final = "000000000000"

#: The actions that let a principal connect: as `admin`, and as the roles that were granted to it.
ACTIONS: Final = frozenset({"DbConnect", "DbConnectAdmin"})


@dataclass(frozen=True)
class Principal:
    """An identity whose tokens the gateway accepts: an ARN with the keys that sign for it."""

    arn: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    #: What its policy allows of `dsql:DbConnect` and `dsql:DbConnectAdmin`.
    actions: frozenset[str] = ACTIONS


@dataclass(frozen=True)
class RegionalEndpoint:
    """One of the host names of a cluster. In DSQL each Region of a multi-Region cluster has an id of its own."""

    id: str
    region: str

    @property
    def host(self) -> str:
        """The host name, as DSQL forms it."""
        return f"{self.id}.dsql.{self.region}.on.aws"


@dataclass
class Cluster:
    """One cluster of the engine: one PostgreSQL instance behind one host name, or one in each of its Regions."""

    id: str  #: 26 characters of [a-z0-9]
    region: str
    socket_path: str  #: PostgreSQL's unix socket file
    principals: Sequence[Principal]  #: the engine's, which may become more
    rules: date  #: the dialect's rules of this day hold
    limits: Limits = DEFAULT  #: replaced as a whole when one is changed; ask anew each time
    backends: int = 1_480  #: connections that its PostgreSQL may be asked for at once
    asleep: bool = False  #: begins INACTIVE
    functions: bool = True  #: clients may have made some, which views call whose text nobody sees
    clock: EngineClock = field(default_factory=EngineClock)
    catalog_version: int = 0  #: counts the committed changes of the catalog
    peers: tuple[str, ...] = ()  #: the further Regions of a multi-Region cluster
    trouble: Trouble | None = None  #: what the engine was started with

    def __post_init__(self) -> None:
        # Clients of the engine import this module for its constants; what follows is the engine's alone.
        from pytest_dsql.local.dpu.meter import Meter
        from pytest_dsql.local.faults.injector import Faults
        from pytest_dsql.local.latency.control import Latency
        from pytest_dsql.local.roles import Trust
        from pytest_dsql.local.trouble import NO_TROUBLE

        trouble = self.trouble or NO_TROUBLE
        self.initial_limits = self.limits  #: the limits that the engine was started with
        self.trust: Trust = Trust(self.socket_path)
        self.latency: Latency = Latency(trouble.seed, trouble.latency)
        self.faults: Faults = Faults(self.clock, trouble.seed, trouble.faults)
        self.dpu: Meter = Meter(self.socket_path, multi_region=bool(self.peers))
        #: One in each Region, the first one first.
        self.endpoints = (
            RegionalEndpoint(self.id, self.region),
            *(RegionalEndpoint(_peer_id(self.id, region), region) for region in self.peers),
        )
        self.limits_changed = Bell()
        self.quotas = Quotas(self.clock, self.limits, asleep=self.asleep)

    def catalog_changed(self) -> None:
        """Note a committed change of the catalog: DDL, GRANT, REVOKE, or the end of an asynchronous job."""
        self.catalog_version += 1

    @property
    def arn(self) -> str:
        """The cluster's ARN."""
        return f"arn:aws:dsql:{self.region}:{ACCOUNT_ID}:cluster/{self.id}"

    @property
    def host(self) -> str:
        """The cluster's host name in its first Region."""
        return self.endpoints[0].host


def _peer_id(cluster_id: str, region: str) -> str:
    """The id in a further Region: the same for the same cluster, so that it outlives the engine with the data."""
    digest = int.from_bytes(sha256(f"{cluster_id}/{region}".encode()).digest(), "big")
    base = len(_ALPHABET)
    return "".join(_ALPHABET[digest // base**place % base] for place in range(CLUSTER_ID_LENGTH))


def new_cluster_id() -> str:
    """A fresh cluster id."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(CLUSTER_ID_LENGTH))
