"""What AWS offers where: the newest PostgreSQL 16 that RDS and Aurora share, and the zones that have a class.

Asked before anything is created: a class or a storage type that a zone doesn't have would fail minutes later.
Source: API reference of RDS, DescribeDBEngineVersions and DescribeOrderableDBInstanceOptions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dsql.errors import UsageError

if TYPE_CHECKING:
    from pytest_dsql.aws.run import AwsRun

#: The major version that is compared; DSQL's own generation.
MAJOR: Final = 16
RDS: Final = "postgres"
AURORA: Final = "aurora-postgresql"


def newest_common_version(run: AwsRun) -> str:
    """Return the newest minor of PostgreSQL 16 that both RDS and Aurora offer in the Region. Raises UsageError."""
    common = _minors(run, RDS) & _minors(run, AURORA)
    if not common:
        raise UsageError(
            f"RDS and Aurora have no minor version of PostgreSQL {MAJOR} in common in {run.region}: name one with "
            "--dsql-target-option version=16.N"
        )
    return f"{MAJOR}.{max(common)}"


def _minors(run: AwsRun, engine: str) -> set[int]:
    versions = run.clients.pages(
        "rds",
        run.region,
        "describe_db_engine_versions",
        "DBEngineVersions",
        Engine=engine,
        DBParameterGroupFamily=f"{engine}{MAJOR}",
    )
    # Aurora also lists variants like 16.8-limitless.
    found = [re.fullmatch(rf"{MAJOR}\.([0-9]+)", str(one["EngineVersion"])) for one in versions]
    return {int(one[1]) for one in found if one is not None}


def zones_for(
    run: AwsRun,
    *,
    engine: str,
    version: str,
    instance_class: str,
    storage_type: str | None = None,
    wanted: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the Availability Zones to use: the wanted ones, else all that offer the class, in order.

    With a `storage_type`, those that offer that as well, for a Multi-AZ instance; Aurora's storage is the cluster's.
    Raises UsageError, naming what is offered, where it is not offered in two zones or not in the wanted ones.
    """
    what = f"{instance_class}{f' with {storage_type} storage' if storage_type else ''} for {engine} {version}"
    offers = list(
        run.clients.pages(
            "rds",
            run.region,
            "describe_orderable_db_instance_options",
            "OrderableDBInstanceOptions",
            Engine=engine,
            EngineVersion=version,
            DBInstanceClass=instance_class,
            Vpc=True,
        )
    )
    if not offers:
        raise UsageError(
            f"{run.region} has no {instance_class} for {engine} {version}: choose another with "
            "--dsql-target-option class=... or version=..."
        )
    fitting = offers
    if storage_type is not None:
        fitting = [one for one in offers if one.get("StorageType") == storage_type and one.get("MultiAZCapable")]
    if not fitting:
        others = ", ".join(sorted({str(one.get("StorageType")) for one in offers if one.get("MultiAZCapable")}))
        raise UsageError(f"{run.region} has no {what}: it has {others} (--dsql-target-option storage-type=...)")
    offered = sorted({str(zone["Name"]) for one in fitting for zone in one.get("AvailabilityZones", ())})
    if missing := [zone for zone in wanted if zone not in offered]:
        raise UsageError(f"{', '.join(missing)} has no {what}; zones that do: {', '.join(offered)}")
    usable = wanted or tuple(sorted(_open_zones(run).intersection(offered)))
    if len(usable) < 2:
        raise UsageError(f"{what} needs two Availability Zones, and {run.region} offers it in {len(usable)}")
    return usable


def _open_zones(run: AwsRun) -> set[str]:
    """Return the zones in which this account can make subnets."""
    answer = run.clients.call(
        "ec2",
        run.region,
        "describe_availability_zones",
        Filters=[{"Name": "state", "Values": ["available"]}, {"Name": "zone-type", "Values": ["availability-zone"]}],
    )
    return {str(one["ZoneName"]) for one in answer["AvailabilityZones"]}
