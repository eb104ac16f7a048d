"""Clients of a running engine, for tests."""

from __future__ import annotations

from typing import Any

import psycopg

from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import sign_token
from pytest_dsql.local.client import Engine, LocalCluster


def connect(engine: Engine, cluster: LocalCluster | None = None) -> psycopg.Connection[Any]:
    cluster = cluster or engine.cluster
    keys = engine.credentials
    endpoint = Endpoint(
        host=cluster.host,
        hostaddr="127.0.0.1",
        port=engine.port,
        region=cluster.region,
        sslrootcert=str(engine.ca_file),
        auth=IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key),
    )
    return psycopg.connect(**endpoint.conninfo(sign_token(endpoint)), autocommit=True)  # type: ignore[arg-type]


def ask(engine: Engine, sql: str, cluster: LocalCluster | None = None) -> Any:
    with connect(engine, cluster) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0]
