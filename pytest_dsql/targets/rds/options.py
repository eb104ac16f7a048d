"""What `--dsql-target-option` may say of a target on RDS or Aurora: checked before anything is created."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, final

from pytest_dsql.connect.rds_root import rds_root
from pytest_dsql.errors import UsageError


@final
@dataclass(frozen=True, slots=True)
class RdsOptions:
    """How a database is to be. Made by `parse`; a field that a target doesn't know keeps its default."""

    instance_class: str = "db.r6g.xlarge"
    storage_gib: int = 400
    storage_type: str = "gp3"
    iops: int | None = None  #: None: the storage type's baseline
    throughput: int | None = None  #: MiB/s; None: the baseline
    cluster_storage: str = "aurora"  #: Aurora Standard; `aurora-iopt1` is I/O-Optimized
    least_acu: float = 4.0
    most_acu: float = 32.0
    version: str | None = None  #: like `16.4`; None: the newest minor of 16 that RDS and Aurora both have
    auth: Literal["password", "iam"] = "password"
    root: Path | None = None  #: the root certificate's file; None: Amazon's of the Region
    zones: tuple[
        str, ...
    ] = ()  #: Availability Zones; the first one is the writer's. Empty: the first two that offer it
    subnets: tuple[str, ...] = ()  #: existing ones
    subnet_group: str | None = None  #: an existing one
    security_group: str | None = None  #: an existing one
    generator: tuple[str, ...] = ()  #: networks that may connect, as CIDR; empty: this host's address
    public: bool | None = None  #: reachable from outside of the VPC; None: yes, in a VPC that is created for it
    parameter_group: str | None = None  #: an existing one
    parameters: Mapping[str, str] = field(default_factory=dict)  #: PostgreSQL's settings
    before: str = "rds-multi-az"  #: the target that a proxy is put before
    proxy_percent: int = 100  #: of the database's max_connections that a proxy may use
    proxy_borrow_s: int = 120  #: how long a client of a proxy waits for a connection
    hostaddr: str | None = None  #: where to connect instead of the host name's address: a tunnel's end
    port: int | None = None  #: there

    @property
    def creates_network(self) -> bool:
        """Tell whether a VPC is created."""
        return not self.subnets and self.subnet_group is None

    @property
    def is_public(self) -> bool:
        """Tell whether the database gets a public address."""
        return self.creates_network if self.public is None else self.public


def parse(target: str, given: Mapping[str, str], *, region: str | None = None) -> RdsOptions:
    """Check a target's options, whose keys it knows all.

    `region`, where it is known already, is one whose root certificate must be known. Raises UsageError, one line.
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key in _READERS:
            name, read = _READERS[key]
            values[name] = read(key, text)
    chosen = RdsOptions(**values)
    _check_together(target, chosen)
    if region is not None and chosen.root is None:
        rds_root(region)
    return chosen


def _check_together(target: str, chosen: RdsOptions) -> None:
    if chosen.parameter_group is not None and chosen.parameters:
        raise UsageError(
            "--dsql-target-option parameter-group: the settings of a group of yours are yours; it excludes parameters"
        )
    if chosen.subnets and chosen.subnet_group is not None:
        raise UsageError("--dsql-target-option: name either subnets or subnet-group, not both")
    if chosen.security_group is not None and chosen.creates_network:
        raise UsageError("--dsql-target-option security-group: it is in a VPC of its own: name the subnets there, too")
    if chosen.security_group is not None and chosen.generator:
        raise UsageError("--dsql-target-option generator: a security group of yours says by itself who may connect")
    if chosen.zones and not chosen.creates_network:
        raise UsageError("--dsql-target-option zones: the subnets that you named are in zones already")
    if not chosen.is_public and chosen.creates_network:
        raise UsageError(
            "--dsql-target-option public=no: nobody reaches a database in a VPC that was created for it alone; name "
            "the subnets of the generator's VPC"
        )
    if chosen.port is not None and chosen.auth == "iam":
        raise UsageError("--dsql-target-option port: a token is good for the database's own port alone (auth=iam)")
    if chosen.least_acu > chosen.most_acu:
        raise UsageError(f"--dsql-target-option min-acu: {chosen.least_acu:g} is more than max-acu")
    if target == "rds-proxy" and chosen.creates_network:
        raise UsageError(
            "target 'rds-proxy' needs --dsql-target-option subnets=ID,ID (or subnet-group=NAME) of the VPC that the "
            "load generator is in: a proxy has no public address"
        )


def _refuse(key: str, text: str, expected: str) -> NoReturn:
    raise UsageError(f"--dsql-target-option {key}: expected {expected}, not {text!r}")


def _matching(pattern: str, expected: str) -> Callable[[str, str], str]:
    def read(key: str, text: str) -> str:
        if not re.fullmatch(pattern, text):
            _refuse(key, text, expected)
        return text

    return read


def _whole(least: int, most: int, unit: str) -> Callable[[str, str], int]:
    def read(key: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            _refuse(key, text, f"a whole number of {unit} from {least} to {most}")
        return int(text)

    return read


def _acu(key: str, text: str) -> float:
    # Aurora user guide, "Aurora Serverless v2 capacity": half steps from 0.5 to 256. 0 would let it fall asleep.
    if not re.fullmatch(r"[0-9]{1,3}(\.[05])?", text) or not 0.5 <= float(text) <= 256:
        _refuse(key, text, "ACU from 0.5 to 256 in steps of 0.5")
    return float(text)


def _several(pattern: str, expected: str, least: int) -> Callable[[str, str], tuple[str, ...]]:
    def read(key: str, text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
        if len(names) < least or not all(re.fullmatch(pattern, name) for name in names):
            _refuse(key, text, f"{expected}, at least {least}, separated by commas")
        return names

    return read


def _networks(key: str, text: str) -> tuple[str, ...]:
    found = []
    for one in (part.strip() for part in text.split(",") if part.strip()):
        try:
            found.append(str(ipaddress.IPv4Network(one)))
        except ValueError:
            _refuse(key, text, "IPv4 addresses or networks like 203.0.113.7 or 10.0.0.0/16, separated by commas")
    if "0.0.0.0/0" in found:
        _refuse(key, text, "the generator's own addresses: a benchmark's database is not the whole internet's")
    return tuple(found)


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def read(key: str, text: str) -> str:
        if text not in allowed:
            _refuse(key, text, f"one of {', '.join(allowed)}")
        return text

    return read


def _yes(key: str, text: str) -> bool:
    if text not in ("yes", "no"):
        _refuse(key, text, "yes or no")
    return text == "yes"


def _file(key: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        _refuse(key, text, "a file with the root certificate to trust")
    return path.absolute()


def _parameters(key: str, text: str) -> dict[str, str]:
    found = {}
    for one in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, value = one.partition(":")
        if not re.fullmatch(r"[a-z][a-z0-9_.]*", name) or not colon or not value:
            _refuse(key, one, "settings of PostgreSQL like random_page_cost:1.1,work_mem:65536")
        found[name] = value
    return found


def _address(key: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        _refuse(key, text, "a numeric address like 127.0.0.1")


_NAME: Final = _matching(r"[A-Za-z][A-Za-z0-9._-]{0,254}", "a name")
#: key -> the field, and what reads it.
_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "class": ("instance_class", _matching(r"db\.[a-z0-9-]+\.[a-z0-9]+", "an instance class like db.r6g.xlarge")),
    "storage": ("storage_gib", _whole(20, 65536, "GiB")),
    "storage-type": ("storage_type", _matching(r"gp2|gp3|io1|io2", "one of gp3, gp2, io1, io2")),
    "cluster-storage": ("cluster_storage", _choice("aurora", "aurora-iopt1")),
    "iops": ("iops", _whole(1000, 256000, "I/O operations per second")),
    "throughput": ("throughput", _whole(125, 16000, "MiB/s")),
    "min-acu": ("least_acu", _acu),
    "max-acu": ("most_acu", _acu),
    "version": ("version", _matching(r"16\.[0-9]{1,2}", "a minor version of PostgreSQL 16, like 16.4")),
    "auth": ("auth", _choice("password", "iam")),
    "sslrootcert": ("root", _file),
    "zones": ("zones", _several(r"[a-z]{2,}(-[a-z]+)+-\d+[a-z0-9-]+", "Availability Zones", 2)),
    "subnets": ("subnets", _several(r"subnet-[0-9a-f]+", "ids of subnets in different zones", 2)),
    "subnet-group": ("subnet_group", _NAME),
    "security-group": ("security_group", _matching(r"sg-[0-9a-f]+", "a security group's id like sg-0123abcd")),
    "generator": ("generator", _networks),
    "public": ("public", _yes),
    "parameter-group": ("parameter_group", _NAME),
    "parameters": ("parameters", _parameters),
    "hostaddr": ("hostaddr", _address),
    "port": ("port", _whole(1, 65535, "a port")),
    "before": ("before", _choice("rds-multi-az", "aurora-provisioned", "aurora-serverless")),
    "proxy-percent": ("proxy_percent", _whole(1, 100, "percent")),
    "proxy-borrow": ("proxy_borrow_s", _whole(0, 300, "seconds")),
}

#: What all of them know: key -> a line of help.
COMMON: Final[Mapping[str, str]] = {
    "version": "minor version of PostgreSQL 16 (the newest that RDS and Aurora both have)",
    "auth": "password (which RDS makes and keeps), or iam for tokens",
    "sslrootcert": "file with the root certificate to trust (Amazon's of the Region)",
    "zones": "Availability Zones, the writer's first (the first two that have the class)",
    "subnets": "ids of existing subnets (a VPC is made)",
    "subnet-group": "an existing subnet group of RDS",
    "security-group": "an existing security group (one is made that lets in only the generator)",
    "generator": "addresses or networks that may connect (this host's address)",
    "public": "yes or no: whether it has a public address (yes in a VPC that is made)",
    "parameter-group": "an existing parameter group of RDS, on Aurora of the cluster",
    "parameters": "settings of PostgreSQL, NAME:VALUE,NAME:VALUE",
    "hostaddr": "numeric address to connect to instead of the host name's: a tunnel's end",
    "port": "port there (5432)",
}
CLASS: Final[Mapping[str, str]] = {"class": "instance class (db.r6g.xlarge)"}
INSTANCE_STORAGE: Final[Mapping[str, str]] = {
    "storage": "GiB (400)",
    "storage-type": "gp3 (default), gp2, io1 or io2",
    "iops": "I/O operations per second (the storage type's baseline)",
    "throughput": "MiB/s of gp3 (the baseline)",
}
CLUSTER_STORAGE: Final[Mapping[str, str]] = {
    "cluster-storage": "aurora (Standard, default) or aurora-iopt1 (I/O-Optimized)"
}
ACU: Final[Mapping[str, str]] = {
    "min-acu": "least capacity of each instance, in ACU (4)",
    "max-acu": "most capacity of each instance, in ACU (32)",
}
PROXY: Final[Mapping[str, str]] = {
    "before": "the target to put the proxy before: rds-multi-az (default), aurora-provisioned or aurora-serverless",
    "proxy-percent": "percent of the database's max_connections that the proxy may use (100)",
    "proxy-borrow": "seconds that a client waits for a connection (120)",
}
