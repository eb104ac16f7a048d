"""The environment in which a client of its own finds a target that is not the embedded engine."""

from __future__ import annotations

import pytest

from pytest_dsql.connect.endpoint import AMAZON_ROOT, Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.targets.environment import environment_of
from pytest_dsql.targets.target import Target

HOST = "abcdefghijklmnopqrstuvwxyz.dsql.eu-central-1.on.aws"


def target_at(endpoint: Endpoint) -> Target:
    return Target(name="attach", endpoint=endpoint, tokens=TokenSource(endpoint), facts={})


def test_a_cluster_is_named_with_a_token_and_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSERVICE", "PGOPTIONS", "PGHOSTADDR", "PGSSLROOTCERT"):
        monkeypatch.setenv(name, "another")
    monkeypatch.delenv("PGSSLROOTCERT")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    auth = IamAuth(access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="not a secret")
    found = environment_of(target_at(Endpoint(HOST, auth=auth)))
    assert (found["PGHOST"], found["PGUSER"], found["PGDATABASE"]) == (HOST, "admin", "postgres")
    assert found["PGPASSWORD"].startswith(f"{HOST}/?Action=DbConnectAdmin&")
    assert (found["PGSSLMODE"], found["PGSSLROOTCERT"]) == ("verify-full", str(AMAZON_ROOT))
    assert (found["DSQL_ENDPOINT"], found["AWS_REGION"]) == (HOST, "eu-central-1")
    assert found["AWS_PROFILE"] == "mine"  # the user's own credentials are what signs
    assert not {"PGSERVICE", "PGOPTIONS", "PGHOSTADDR"} & found.keys()


def test_a_password_that_libpq_finds_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSFILE", "/somewhere/pgpass")
    found = environment_of(target_at(Endpoint.from_dsn("postgresql://me@db.example/app?sslmode=require")))
    assert (found["PGHOST"], found["PGPORT"], found["PGUSER"], found["PGDATABASE"]) == (
        "db.example",
        "5432",
        "me",
        "app",
    )
    assert (found["PGSSLMODE"], found["PGPASSFILE"]) == ("require", "/somewhere/pgpass")
    assert "DSQL_ENDPOINT" not in found
