"""Creates the databases: one Multi-AZ instance of RDS, or an Aurora cluster with a writer and a reader.

Source: API reference of RDS, CreateDBInstance and CreateDBCluster, and the user guides' pages on the statuses of
instances and clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.kinds.rds import DbCluster, DbInstance
from pytest_dsql.connect.rds_root import AUTHORITY
from pytest_dsql.errors import DsqlError
from pytest_dsql.targets.rds.network import PORT, SETTLES
from pytest_dsql.targets.rds.offers import AURORA, RDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.targets.rds.network import Network
    from pytest_dsql.targets.rds.options import RdsOptions

#: The role that RDS makes, with a password of RDS's; at most 16 characters.
MASTER: Final = "pytest_dsql"
#: The database that is made with it, and that belongs to it.
DATABASE: Final = "pytest_dsql"

#: A Multi-AZ instance takes ten to twenty minutes, an Aurora cluster about ten.
_READY_S: Final = 3600.0
#: From these statuses nothing comes back by itself (user guides, "Viewing DB instance status").
_BROKEN: Final = frozenset(
    {
        "failed",
        "inaccessible-encryption-credentials",
        "incompatible-create",
        "incompatible-network",
        "incompatible-option-group",
        "incompatible-parameters",
        "incompatible-restore",
        "insufficient-capacity",
        "restore-error",
        "storage-full",
    }
)
#: In a network that was just made RDS may not see the internet gateway yet (InvalidVPCNetworkStateFault).
_NETWORK_SETTLES: Final = SETTLES | {Failure.CONFLICT}
#: What to do about refusals that name no option of ours. API reference, "Errors" of both create calls.
_REMEDIES: Final[Mapping[str, str]] = {
    "InsufficientDBInstanceCapacity": "choose other zones (zones=A,B) or another class (class=...)",
    "InsufficientStorageClusterCapacity": "choose other zones (zones=A,B), or try later",
    "ProvisionedIopsNotAvailableInAZFault": "choose other zones (zones=A,B) or storage-type=gp3",
    "StorageTypeNotSupported": "choose another storage-type",
    "StorageTypeNotSupportedFault": "choose another storage-type",
    "DBSubnetGroupDoesNotCoverEnoughAZs": "name subnets in at least two zones that have the class",
    "InvalidVPCNetworkStateFault": "its subnets must be there, and with public=yes have an internet gateway",
    "InvalidParameterCombination": "choose another class, storage-type, iops or version",
    "InvalidParameterValue": "choose another class, storage, iops or version",
}


@final
@dataclass(frozen=True, slots=True)
class Database:
    """A database that accepts connections: how RDS names it, and what it said of it."""

    identifier: str  #: of the instance, or of the Aurora cluster
    is_cluster: bool
    host: str
    port: int
    secret: str  #: the ARN of the master's secret
    version: str
    zones: tuple[str, ...]  #: the writer's first
    instances: tuple[str, ...]


def create_instance(
    run: AwsRun, options: RdsOptions, network: Network, *, version: str, parameter_group: str | None
) -> Database:
    """Create a Multi-AZ instance of RDS for PostgreSQL, and wait until it is available. Raises AwsError, DsqlError."""
    name = run.name(run.owner)
    settings = {
        **_common(run, options, version),
        "DBInstanceIdentifier": name,
        "Engine": RDS,
        "DBInstanceClass": options.instance_class,
        "DBName": DATABASE,
        "AllocatedStorage": options.storage_gib,
        "StorageType": options.storage_type,
        "MultiAZ": True,
        "DBSubnetGroupName": network.subnet_group,
        "VpcSecurityGroupIds": [network.security_group],
        "PubliclyAccessible": network.public,
        "AutoMinorVersionUpgrade": False,
        "CACertificateIdentifier": AUTHORITY,
        **_given(
            DBParameterGroupName=options.parameter_group or parameter_group,
            Iops=options.iops,
            StorageThroughput=options.throughput,
        ),
    }
    _create(
        run,
        "db-instance",
        name,
        "create_db_instance",
        settings,
        ("DBInstance", "DBInstanceArn"),
        again_on=_NETWORK_SETTLES if options.creates_network else SETTLES,
    )
    instance = _available(run, name)
    return instance_as_it_is(run, name, instance)


def create_cluster(
    run: AwsRun,
    options: RdsOptions,
    network: Network,
    *,
    version: str,
    parameter_group: str | None,
    serverless: bool,
) -> Database:
    """Create an Aurora cluster with a writer and a reader in another zone, and wait until both are available."""
    name = run.name(run.owner)
    settings = {
        **_common(run, options, version),
        "DBClusterIdentifier": name,
        "Engine": AURORA,
        "DatabaseName": DATABASE,
        "DBSubnetGroupName": network.subnet_group,
        "VpcSecurityGroupIds": [network.security_group],
        **_given(
            DBClusterParameterGroupName=options.parameter_group or parameter_group,
            # The default, `aurora`, is named by leaving it out: RDS doesn't name it either.
            StorageType=options.cluster_storage if options.cluster_storage != "aurora" else None,
        ),
    }
    if serverless:
        settings["ServerlessV2ScalingConfiguration"] = {
            "MinCapacity": options.least_acu,
            "MaxCapacity": options.most_acu,
        }
    _create(run, "db-cluster", name, "create_db_cluster", settings, ("DBCluster", "DBClusterArn"))
    # Both at once: whichever RDS makes first is the writer.
    for number, zone in enumerate(network.zones[:2], 1):
        member = member_name(run, number)
        _create(
            run,
            "db-instance",
            member,
            "create_db_instance",
            {
                "DBInstanceIdentifier": member,
                "DBClusterIdentifier": name,
                "Engine": AURORA,
                "DBInstanceClass": "db.serverless" if serverless else options.instance_class,
                "AvailabilityZone": zone,
                "PubliclyAccessible": network.public,
                "AutoMinorVersionUpgrade": False,
                "CACertificateIdentifier": AUTHORITY,
                "PromotionTier": number,
                "Tags": run.tag_list(),
            },
            ("DBInstance", "DBInstanceArn"),
            again_on=_NETWORK_SETTLES if options.creates_network else SETTLES,
        )
    for number in range(1, len(network.zones[:2]) + 1):
        _available(run, member_name(run, number))
    return cluster_as_it_is(run, name)


def instance_as_it_is(run: AwsRun, name: str, instance: dict[str, Any] | None = None) -> Database:
    """Return an instance of RDS that is available. Raises AwsError."""
    instance = instance or DbInstance.look(run.clients, run.region, name)
    second = instance.get("SecondaryAvailabilityZone")
    return Database(
        identifier=name,
        is_cluster=False,
        host=str(instance["Endpoint"]["Address"]),
        port=int(instance["Endpoint"]["Port"]),
        secret=str(instance["MasterUserSecret"]["SecretArn"]),
        version=str(instance["EngineVersion"]),
        zones=tuple(str(zone) for zone in (instance.get("AvailabilityZone"), second) if zone),
        instances=(name,),
    )


def cluster_as_it_is(run: AwsRun, name: str) -> Database:
    """Return an Aurora cluster when it is available. Raises AwsError, DsqlError."""

    def available() -> dict[str, Any] | None:
        cluster = DbCluster.look(run.clients, run.region, name)
        status = str(cluster["Status"])
        _check_status(f"the Aurora cluster {name}", status)
        return cluster if status == "available" and _has_secret(cluster) else None

    cluster = run.wait(available, what=f"the Aurora cluster {name}", limit_s=_READY_S)
    members = sorted(
        cluster["DBClusterMembers"], key=lambda one: (not one["IsClusterWriter"], one["DBInstanceIdentifier"])
    )
    instances = [DbInstance.look(run.clients, run.region, one["DBInstanceIdentifier"]) for one in members]
    return Database(
        identifier=name,
        is_cluster=True,
        host=str(cluster["Endpoint"]),
        port=int(cluster["Port"]),
        secret=str(cluster["MasterUserSecret"]["SecretArn"]),
        version=str(cluster["EngineVersion"]),
        zones=tuple(str(one["AvailabilityZone"]) for one in instances),
        instances=tuple(str(one["DBInstanceIdentifier"]) for one in instances),
    )


def member_name(run: AwsRun, number: int) -> str:
    """Return the name of the first or second instance of a cluster."""
    return run.name(f"{run.owner}-{number}")


def _common(run: AwsRun, options: RdsOptions, version: str) -> dict[str, Any]:
    return {
        "EngineVersion": version,
        "Port": PORT,
        "MasterUsername": MASTER,
        "ManageMasterUserPassword": True,
        "EnableIAMDatabaseAuthentication": options.auth == "iam",
        "BackupRetentionPeriod": 1,  # the least that Aurora takes, and what a service in use has
        "StorageEncrypted": True,  # as DSQL's is always
        "DeletionProtection": False,
        "Tags": run.tag_list(),
    }


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _create(
    run: AwsRun,
    kind: str,
    name: str,
    operation: str,
    settings: dict[str, Any],
    arn: tuple[str, str],
    *,
    again_on: frozenset[Failure] = SETTLES,
) -> None:
    try:
        run.create_by("rds", operation, kind, name, lambda _entry: settings, arn, again_on=again_on)
    except AwsError as error:
        remedy = _REMEDIES.get(error.code)
        if remedy is None:
            raise
        raise AwsError(
            f"{error}; {remedy}",
            failure=error.failure,
            code=error.code,
            action=error.action,
            region=error.region,
        ) from None


def _available(run: AwsRun, name: str) -> dict[str, Any]:
    def available() -> dict[str, Any] | None:
        instance = DbInstance.look(run.clients, run.region, name)
        status = str(instance["DBInstanceStatus"])
        _check_status(f"the instance {name}", status)
        ready = status == "available" and instance.get("Endpoint")
        # A member of a cluster has no secret of its own.
        return instance if ready and (instance.get("DBClusterIdentifier") or _has_secret(instance)) else None

    return run.wait(available, what=f"the instance {name}", limit_s=_READY_S)


def _has_secret(one: dict[str, Any]) -> bool:
    return bool(one.get("MasterUserSecret", {}).get("SecretStatus") == "active")


def _check_status(what: str, status: str) -> None:
    if status in _BROKEN:
        raise DsqlError(f"{what} became {status}: the RDS console's events of it say why")
