"""Clients of a running engine, for tests."""

from __future__ import annotations

from typing import Any

import psycopg

from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import sign_token
from pytest_dsql.local.client import Engine, LocalCluster


def endpoint_of(engine: Engine, cluster: LocalCluster | None = None) -> Endpoint:
    cluster = cluster or engine.cluster
    keys = engine.credentials
    return Endpoint(
        host=cluster.host,
        hostaddr="127.0.0.1",
        port=engine.port,
        region=cluster.region,
        sslrootcert=str(engine.ca_file),
        auth=IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key),
    )


def token_for(engine: Engine, cluster: LocalCluster | None = None) -> str:
    return sign_token(endpoint_of(engine, cluster))


def connect(engine: Engine, cluster: LocalCluster | None = None, token: str | None = None) -> psycopg.Connection[Any]:
    endpoint = endpoint_of(engine, cluster)
    parameters: dict[str, Any] = endpoint.conninfo(token or sign_token(endpoint))
    return psycopg.connect(**parameters, autocommit=True)


def ask(engine: Engine, sql: str, cluster: LocalCluster | None = None, token: str | None = None) -> Any:
    with connect(engine, cluster, token) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0]
