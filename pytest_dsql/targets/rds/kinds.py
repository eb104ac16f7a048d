"""The three databases that can be created, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.targets.rds.offers import AURORA, RDS
from pytest_dsql.targets.rds.options import ACU, CLASS, CLUSTER_STORAGE, COMMON, INSTANCE_STORAGE

if TYPE_CHECKING:
    from pytest_dsql.targets.rds.options import RdsOptions


@final
@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One of the databases: its name as a target, and its options with a line of help each."""

    name: str
    engine: str
    keys: Mapping[str, str]
    serverless: bool = False

    @property
    def is_cluster(self) -> bool:
        """Tell whether it is an Aurora cluster."""
        return self.engine == AURORA

    def instance_class(self, options: RdsOptions) -> str:
        """Return the class of its instances."""
        return "db.serverless" if self.serverless else options.instance_class


RDS_MULTI_AZ: Final = DatabaseKind("rds-multi-az", RDS, {**CLASS, **INSTANCE_STORAGE, **COMMON})
AURORA_PROVISIONED: Final = DatabaseKind("aurora-provisioned", AURORA, {**CLASS, **CLUSTER_STORAGE, **COMMON})
AURORA_SERVERLESS: Final = DatabaseKind(
    "aurora-serverless", AURORA, {**ACU, **CLUSTER_STORAGE, **COMMON}, serverless=True
)
DATABASES: Final = {one.name: one for one in (RDS_MULTI_AZ, AURORA_PROVISIONED, AURORA_SERVERLESS)}
