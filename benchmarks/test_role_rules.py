"""Role rules: what a role with the least privilege may do, `dsql:DbConnect` on one cluster and what it was granted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pytest_dsql import Endpoint
from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed
from pytest_dsql.local.controls import LocalControls

pytestmark = pytest.mark.dsql

ROLE = "arn:aws:iam::123456789012:role/function"


@pytest.fixture
def as_function(dsql_local: LocalControls, dsql_endpoint: Endpoint) -> Callable[..., psycopg.Connection[Any]]:
    """Log in with the keys of an IAM role that may connect, but not as `admin`."""
    principal = dsql_local.engine.add_principal(ROLE, ["DbConnect"])
    auth = IamAuth(
        access_key_id=principal.access_key_id,
        secret_access_key=principal.secret_access_key,
        session_token=principal.session_token,
    )

    def log_in(user: str = "writer", **where: str) -> psycopg.Connection[Any]:
        endpoint = replace(dsql_endpoint, auth=auth, user=user, **where)  # type: ignore[arg-type]
        return dial(endpoint, TokenSource(endpoint))[0]

    return log_in


@pytest.fixture
def admin(dsql_connect: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """Make the database role `writer` and let the IAM role be it."""
    connection = dsql_connect()
    connection.execute("CREATE ROLE writer WITH LOGIN")
    connection.execute(f"AWS IAM GRANT writer TO '{ROLE}'")
    return connection


@pytest.fixture(autouse=True)
def no_writer(dsql_connect: Callable[[], psycopg.Connection[Any]]) -> Iterator[None]:
    """Take the role back, with the schema that it was granted something in: roles outlive a test by themselves."""
    yield
    connection = dsql_connect()
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'writer'").fetchone():
        connection.execute(f"AWS IAM REVOKE writer FROM '{ROLE}'")
        connection.execute("DROP SCHEMA IF EXISTS functions CASCADE")
        connection.execute("DROP ROLE writer")


def test_a_grant_on_all_tables_covers_those_that_exist(
    admin: psycopg.Connection[Any], as_function: Callable[..., psycopg.Connection[Any]]
) -> None:
    """A table that is made after `GRANT ... ON ALL TABLES` needs a grant of its own."""
    admin.execute("CREATE SCHEMA functions")
    admin.execute("CREATE TABLE functions.earlier (id int PRIMARY KEY)")
    admin.execute("GRANT USAGE ON SCHEMA functions TO writer")
    admin.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA functions TO writer")
    admin.execute("CREATE TABLE functions.later (id int PRIMARY KEY)")
    with as_function() as function:
        function.execute("INSERT INTO functions.earlier VALUES (1)")
        assert function.execute("SELECT id FROM functions.earlier").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            function.execute("INSERT INTO functions.later VALUES (1)")
    admin.execute("GRANT INSERT ON functions.later TO writer")
    with as_function() as function:
        function.execute("INSERT INTO functions.later VALUES (1)")


def test_connecting_is_allowed_as_that_role_alone(
    admin: psycopg.Connection[Any], as_function: Callable[..., psycopg.Connection[Any]]
) -> None:
    """`dsql:DbConnect` makes nobody `admin`, and no role that wasn't granted."""
    admin.execute("CREATE ROLE other WITH LOGIN")
    try:
        for user in ("admin", "other"):
            with pytest.raises(ConnectionFailed, match="access denied"):
                as_function(user)
    finally:
        admin.execute("DROP ROLE other")
    with as_function() as function:
        assert function.execute("SELECT current_user").fetchone() == ("writer",)


@pytest.mark.usefixtures("admin")
def test_another_cluster_refuses_the_role(
    dsql_local: LocalControls,
    as_function: Callable[..., psycopg.Connection[Any]],
) -> None:
    """The grant is that of one cluster's role: another one doesn't know it."""
    with as_function() as function:
        assert function.execute("SELECT 1").fetchone() == (1,)
    cluster = dsql_local.engine.new_cluster()
    try:
        with pytest.raises(ConnectionFailed, match="access denied"):
            as_function(host=cluster.host, region=cluster.region)
    finally:
        dsql_local.engine.remove_cluster(cluster.id)
