"""What of a target is paid for: declared by the module that makes the target, priced and metered here.

The same shape serves the estimate, before anything exists (then without ids), and the meters (then with them).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Fixed:
    """So much of something: paid for as long as it exists (an instance, storage, an address), or by the piece."""

    item: str  #: as `prices` names it: `rds-multi-az/db.r6g.xlarge`
    region: str
    quantity: float = 1.0  #: instances, GB, IOPS, addresses, requests
    least_s: float = 0.0  #: paid for at least so long (RDS instances: 600 s, Aurora user guide, "DB instance billing")


@final
@dataclass(frozen=True, slots=True)
class DsqlUse:
    """Work on an Aurora DSQL cluster: DPU, and what is stored."""

    region: str
    cluster: str | None = None  #: its 26-character id, once there is one
    #: Peers in other Regions, as (Region, cluster id): each is charged for the writes that it takes in.
    peers: tuple[tuple[str, str | None], ...] = ()

    @property
    def clusters(self) -> tuple[tuple[str, str | None], ...]:
        """The Region and id of each cluster."""
        return ((self.region, self.cluster), *self.peers)


@final
@dataclass(frozen=True, slots=True)
class AcuUse:
    """Instances of Aurora Serverless v2, each of which has so many Aurora Capacity Units (ACU) as it needs."""

    region: str
    least: float  #: ACU of one instance
    most: float
    count: int  #: instances
    item: str = "aurora-acu"  #: as `prices` names it; I/O-Optimized has a price of its own
    instances: tuple[str, ...] = ()  #: their identifiers, once there are some


@final
@dataclass(frozen=True, slots=True)
class AuroraIo:
    """Requests to the storage of an Aurora cluster, and what is stored in it (configuration Aurora Standard)."""

    region: str
    cluster: str | None = None  #: its identifier, once there is one


@final
@dataclass(frozen=True, slots=True)
class CostShape:
    """All of a target that is paid for."""

    target: str
    fixed: tuple[Fixed, ...] = ()
    dsql: DsqlUse | None = None
    acu: AcuUse | None = None
    io: AuroraIo | None = None
    coming_s: float = 0.0  #: how long it takes to create and to remove it, together: paid for as well

    @property
    def items(self) -> tuple[str, ...]:
        """Every item of it that has a price."""
        found = [one.item for one in self.fixed]
        found += ["dsql-dpu", "dsql-storage"] if self.dsql is not None else []
        found += [self.acu.item] if self.acu is not None else []
        found += ["aurora-io", "aurora-storage"] if self.io is not None else []
        return tuple(dict.fromkeys(found))

    def to_json(self) -> str:
        """Write it down, for the results file. Nothing in it is secret."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CostShape:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        value = json.loads(text)
        dsql, acu, io = value["dsql"], value["acu"], value["io"]
        return cls(
            target=value["target"],
            fixed=tuple(Fixed(**one) for one in value["fixed"]),
            dsql=None if dsql is None else DsqlUse(**{**dsql, "peers": tuple(map(tuple, dsql["peers"]))}),
            acu=None if acu is None else AcuUse(**{**acu, "instances": tuple(acu["instances"])}),
            io=None if io is None else AuroraIo(**io),
            coming_s=value["coming_s"],
        )

    @property
    def regions(self) -> tuple[str, ...]:
        """Every Region in which something of it is."""
        found = [one.region for one in self.fixed]
        if self.dsql is not None:
            found += [region for region, _ in self.dsql.clusters]
        found += [one.region for one in (self.acu, self.io) if one is not None]
        return tuple(dict.fromkeys(found))
