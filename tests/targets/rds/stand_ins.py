"""What moto lacks of RDS, answered inside botocore, and the one place where a database of moto's becomes a PostgreSQL.

Importable as a pytest plugin (`-p tests.targets.rds.stand_ins`) by sessions in other processes, which then find in the
environment where the PostgreSQL is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg

from tests.plain_postgres import PlainPostgres, plain_postgres

#: The password of every secret that moto makes for RDS.
MOTO_PASSWORD = "P@55w0rd!"
#: What the account of these tests is offered, made up in the shape of the API reference's answers. The newest minor
#: that both have is 16.10, which is not the newest of either, nor the last one by name.
MINORS = {"postgres": ("16.9", "16.10", "16.11"), "aurora-postgresql": ("16.4", "16.10", "16.9", "16.8-limitless")}
#: By class: the zones (the letters behind the Region's name) and RDS's storage types.
CLASSES = {
    "db.r6g.xlarge": ("abc", ("gp3", "io1")),
    "db.serverless": ("ab", ()),
    "db.r6g.large": ("bc", ("gp3",)),
    "db.t4g.micro": ("a", ("gp3",)),
}
ADDRESS = "PYTEST_DSQL_TEST_POSTGRES"


def engine_versions(params: dict[str, Any], **_ignored: Any) -> tuple[Any, dict[str, Any]]:
    """Stand in for DescribeDBEngineVersions, which moto hasn't. Shape: API reference, DBEngineVersion."""
    engine = params["body"]["Engine"]
    assert params["body"]["DBParameterGroupFamily"] == f"{engine}16"
    versions = [{"Engine": engine, "EngineVersion": minor} for minor in MINORS.get(engine, ())]
    return SimpleNamespace(status_code=200), {"DBEngineVersions": versions, "ResponseMetadata": {}}


def orderable_options(params: dict[str, Any], context: dict[str, Any], **_ignored: Any) -> tuple[Any, dict[str, Any]]:
    """Stand in for DescribeOrderableDBInstanceOptions, which in moto knows neither RDS nor versions of today.

    Shape: API reference, OrderableDBInstanceOption.
    """
    body = params["body"]
    engine, version, name = body["Engine"], body["EngineVersion"], body["DBInstanceClass"]
    region = context["client_region"]
    zones, storage = CLASSES.get(name, ("", ()))
    kinds = storage if engine == "postgres" else ("aurora", "aurora-iopt1") if zones else ()
    offers = [
        {
            "Engine": engine,
            "EngineVersion": version,
            "DBInstanceClass": name,
            "StorageType": kind,
            "MultiAZCapable": True,
            "AvailabilityZones": [{"Name": f"{region}{letter}"} for letter in zones],
        }
        for kind in kinds
        if version in MINORS[engine]
    ]
    return SimpleNamespace(status_code=200), {"OrderableDBInstanceOptions": offers, "ResponseMetadata": {}}


def redirect(host: str, port: int) -> Callable[..., None]:
    """The one place where host names that moto made up become the address of a PostgreSQL."""

    def rewrite(parsed: dict[str, Any], **_ignored: Any) -> None:
        for one in parsed.get("DBInstances", ()):
            if "Endpoint" in one:
                one["Endpoint"] |= {"Address": host, "Port": port}
        for one in parsed.get("DBClusters", ()):
            one |= {"Endpoint": host, "Port": port}
        for one in parsed.get("DBProxies", ()):
            one["Endpoint"] = host

    return rewrite


def handlers(host: str, port: int) -> list[tuple[str, Any]]:
    """Everything above, as botocore's event handlers."""
    rewrite = redirect(host, port)
    return [
        ("before-call.rds.DescribeDBEngineVersions", engine_versions),
        ("before-call.rds.DescribeOrderableDBInstanceOptions", orderable_options),
        ("after-call.rds.DescribeDBInstances", rewrite),
        ("after-call.rds.DescribeDBClusters", rewrite),
        ("after-call.rds.DescribeDBProxies", rewrite),
    ]


def install(host: str, port: int) -> None:
    """Have every botocore session that this process makes from now on use them."""
    import botocore.handlers

    botocore.handlers.BUILTIN_HANDLERS.extend(handlers(host, port))


@contextmanager
def database_of_moto(settings: dict[str, str] | None = None) -> Iterator[PlainPostgres]:
    """Run a PostgreSQL with TLS that has what RDS would have made: the master with moto's password, its database."""
    with plain_postgres(tls=True, settings=settings) as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            for statement in (
                f"CREATE ROLE pytest_dsql LOGIN CREATEROLE PASSWORD '{MOTO_PASSWORD}'",
                "CREATE ROLE rds_iam",
                "GRANT rds_iam TO pytest_dsql WITH ADMIN OPTION",
                "CREATE DATABASE pytest_dsql OWNER pytest_dsql",
            ):
                connection.execute(statement.encode())
        yield postgres


if ADDRESS in os.environ:
    _host, _port = os.environ[ADDRESS].rsplit(":", 1)
    install(_host, int(_port))
