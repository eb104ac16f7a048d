"""What of a database on RDS is paid for. Sources: pricing pages of RDS, Aurora, RDS Proxy, VPC and Secrets Manager."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape, Fixed

if TYPE_CHECKING:
    from pytest_dsql.targets.rds.kinds import DatabaseKind
    from pytest_dsql.targets.rds.options import RdsOptions

#: An instance is paid for at least ten minutes.
_LEAST_S: Final = 600.0
#: A guess of how long creating and removing take together: seen on nobody's account yet.
_COMING_S: Final = 1800.0
_PROXY_COMING_S: Final = 900.0
#: What gp3 includes: I/O operations and MiB a second below 400 GiB, and from there on (RDS user guide, "gp3 storage").
_GP3_FROM_GIB: Final = 400
_GP3_IOPS: Final = (3000, 12000)
_GP3_MIB_S: Final = (125, 500)
#: The published data set is about 5 GiB.
_STORED_GB: Final = 10.0
#: A proxy is paid for by the virtual processors of its database's instances, two at least, or by their ACU, eight at
#: least.
_LEAST_VCPU: Final = 2
_LEAST_ACU: Final = 8.0


def shape_of(kind: DatabaseKind, options: RdsOptions, region: str) -> CostShape:
    """Return what of a database is paid for, without ids: they come from the inventory."""
    addresses = (Fixed("public-ipv4", region, 2),) if options.is_public else ()
    common = (*addresses, Fixed("secret", region))
    if not kind.is_cluster:
        return CostShape(kind.name, fixed=(*_instance(options, region), *common), coming_s=_COMING_S)
    optimized = options.cluster_storage == "aurora-iopt1"
    suffix = "-iopt" if optimized else ""
    fixed = (*common, Fixed("aurora-storage-iopt", region, _STORED_GB)) if optimized else common
    acu = None
    if kind.serverless:
        acu = AcuUse(region, options.least_acu, options.most_acu, 2, item=f"aurora-acu{suffix}")
    else:
        fixed = (*fixed, Fixed(f"aurora-instance{suffix}/{options.instance_class}", region, 2, _LEAST_S))
    return CostShape(kind.name, fixed=fixed, acu=acu, io=None if optimized else AuroraIo(region), coming_s=_COMING_S)


def with_proxy(shape: CostShape, target: str, kind: DatabaseKind, options: RdsOptions, region: str) -> CostShape:
    """Return the shape of a database with a proxy before it."""
    if kind.serverless:
        proxy = Fixed("rds-proxy-acu", region, 2 * max(options.most_acu, _LEAST_ACU), _LEAST_S)
    else:
        instances = 2 if kind.is_cluster else 1
        proxy = Fixed("rds-proxy", region, instances * max(_vcpu(options.instance_class), _LEAST_VCPU), _LEAST_S)
    return replace(shape, target=target, fixed=(*shape.fixed, proxy), coming_s=shape.coming_s + _PROXY_COMING_S)


def _instance(options: RdsOptions, region: str) -> tuple[Fixed, ...]:
    found = [
        Fixed(f"rds-multi-az/{options.instance_class}", region, 1, _LEAST_S),
        Fixed(f"rds-multi-az-{options.storage_type}", region, options.storage_gib),
    ]
    large = options.storage_gib >= _GP3_FROM_GIB
    included = _GP3_IOPS[large] if options.storage_type == "gp3" else 0
    if (options.iops or 0) > included:
        found.append(Fixed(f"rds-multi-az-{options.storage_type}-iops", region, (options.iops or 0) - included))
    if (options.throughput or 0) > _GP3_MIB_S[large]:
        found.append(Fixed("rds-multi-az-gp3-throughput", region, (options.throughput or 0) - _GP3_MIB_S[large]))
    return tuple(found)


def _vcpu(instance_class: str) -> int:
    """Return the virtual processors of a class: two up to `large`, four times the number before `xlarge`."""
    size = instance_class.rpartition(".")[2]
    if match := re.fullmatch(r"([0-9]*)xlarge", size):
        return 4 * int(match[1] or 1)
    return 2
