"""Makes one of the databases with all that it needs, and the target of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_dsql.targets.created import options_of
from pytest_dsql.targets.rds.database import create_cluster, create_instance
from pytest_dsql.targets.rds.network import network_for
from pytest_dsql.targets.rds.offers import newest_common_version, zones_for
from pytest_dsql.targets.rds.options import parse
from pytest_dsql.targets.rds.parameters import check_parameter_group, parameter_group
from pytest_dsql.targets.rds.reaching import endpoint_of, server_of

if TYPE_CHECKING:
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.rds.database import Database
    from pytest_dsql.targets.rds.kinds import DatabaseKind
    from pytest_dsql.targets.rds.network import Network
    from pytest_dsql.targets.rds.options import RdsOptions
    from pytest_dsql.targets.target import Target


def open_database(settings: Settings, run: AwsRun, kind: DatabaseKind) -> Target:
    """Make a database, wait until it can be worked with, and return the target.

    Raises UsageError (before anything is created), AwsError, ConnectionFailed, DsqlError.
    """
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.target import Target

    options = parse(kind.name, options_of(settings), region=run.region)
    database, _network = make(run, kind, options)
    endpoint = endpoint_of(run, options, database)
    return Target(
        name=settings.target,
        endpoint=endpoint,
        tokens=TokenSource(endpoint),
        facts={
            "dialect": "postgresql",
            "server": server_of(run, endpoint),
            **facts_of(kind, options, database),
        },
    )


def make(run: AwsRun, kind: DatabaseKind, options: RdsOptions) -> tuple[Database, Network]:
    """Make a database and its network. Raises UsageError (before anything is created), AwsError, DsqlError."""
    version = options.version or newest_common_version(run)
    zones = zones_for(
        run,
        engine=kind.engine,
        version=version,
        instance_class=kind.instance_class(options),
        storage_type=None if kind.is_cluster else options.storage_type,
        wanted=options.zones,
    )
    if options.parameter_group is not None:
        check_parameter_group(run, options.parameter_group, cluster=kind.is_cluster)
    run.say(f"creating {kind.name} in {run.region} ({', '.join(zones[:2])}), PostgreSQL {version}")
    network = network_for(run, options, zones)
    group = parameter_group(run, kind.engine, options.parameters, cluster=kind.is_cluster)
    if kind.is_cluster:
        database = create_cluster(
            run, options, network, version=version, parameter_group=group, serverless=kind.serverless
        )
    else:
        database = create_instance(run, options, network, version=version, parameter_group=group)
    return database, network


def facts_of(kind: DatabaseKind, options: RdsOptions, database: Database) -> dict[str, Any]:
    """Return what the results file says of a database: texts and numbers. Nothing secret, no account id."""
    facts: dict[str, Any] = {
        "zones": "+".join(database.zones),
        "engine_version": database.version,
        "instance_class": kind.instance_class(options),
        "instances": len(database.instances),
        "authentication": options.auth,
    }
    if kind.is_cluster:
        facts["storage"] = options.cluster_storage
    else:
        facts["storage"] = f"{options.storage_gib} GiB {options.storage_type}"
        facts |= {"iops": options.iops} if options.iops is not None else {}
        facts |= {"throughput_mib_s": options.throughput} if options.throughput is not None else {}
    if kind.serverless:
        facts["acu"] = f"{options.least_acu:g}-{options.most_acu:g}"
    if options.parameters:
        facts["parameters"] = ", ".join(f"{name}={value}" for name, value in options.parameters.items())
    return facts
