"""Roles and IAM identities of a running engine: who may be whom, and what `admin` may do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import sign_token
from pytest_dsql.errors import EngineError
from pytest_dsql.local.client import Engine
from pytest_dsql.local.cluster import Principal
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.local.roles import covers
from tests.local.engines import connect, endpoint_of

ROLE = "arn:aws:iam::123456789012:role/team/reporting"
USER = "arn:aws:iam::123456789012:user/reporting"
SESSION = "arn:aws:sts::123456789012:assumed-role/reporting/monday"

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach(options=EngineOptions()) as engine:
        yield engine


@pytest.fixture
def admin(engine: Engine) -> Iterator[Connection]:
    """An admin's session, with a role `reader` that nobody may be yet."""
    with connect(engine) as connection:
        execute(connection, "CREATE ROLE reader WITH LOGIN")
        yield connection
        for (arn,) in execute(connection, "SELECT arn FROM sys.iam_pg_role_mappings").fetchall():
            execute(connection, f"AWS IAM REVOKE reader FROM '{arn}'")
        execute(connection, "DROP ROLE reader")


def execute(connection: Connection, sql: str) -> psycopg.Cursor[Any]:
    """Execute a statement; again while the catalog has changed."""
    while True:
        try:
            return connection.execute(sql)
        except psycopg.errors.SerializationFailure as error:
            if "OC001" not in str(error):
                raise


def endpoint_for(engine: Engine, principal: Principal, user: str) -> Endpoint:
    auth = IamAuth(
        access_key_id=principal.access_key_id,
        secret_access_key=principal.secret_access_key,
        session_token=principal.session_token,
    )
    return replace(endpoint_of(engine), auth=auth, user=user)


def log_in(engine: Engine, principal: Principal, user: str = "reader") -> Connection:
    endpoint = endpoint_for(engine, principal, user)
    parameters: dict[str, Any] = endpoint.conninfo(sign_token(endpoint))
    return psycopg.connect(**parameters, autocommit=True)


def refusal(engine: Engine, principal: Principal, user: str = "reader") -> str:
    with pytest.raises(psycopg.OperationalError) as raised:
        log_in(engine, principal, user)
    assert "unable to accept connection, access denied" in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(("granted", "arn"), [(ROLE, ROLE), (USER, USER), (ROLE, SESSION)])
def test_a_principal_is_the_role_that_was_granted_to_it(
    engine: Engine, admin: Connection, granted: str, arn: str
) -> None:
    principal = engine.add_principal(arn)
    assert f"User: {arn} is not authorized to access this resource" in refusal(engine, principal)
    execute(admin, f"AWS IAM GRANT reader TO '{granted}'")
    with log_in(engine, principal) as reader:
        assert execute(reader, "SELECT current_user").fetchone() == ("reader",)


def test_a_grant_to_one_principal_is_none_to_another(engine: Engine, admin: Connection) -> None:
    execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
    refusal(engine, engine.add_principal(USER))


@pytest.mark.parametrize(
    ("granted", "principal", "covered"),
    [
        ("arn:aws:iam::1:role/a", "arn:aws:sts::1:assumed-role/a/s", True),
        ("arn:aws:iam::1:role/path/a", "arn:aws:sts::1:assumed-role/a/s", True),
        ("arn:aws-cn:iam::1:role/a", "arn:aws:sts::1:assumed-role/a/s", False),
        ("arn:aws:iam::2:role/a", "arn:aws:sts::1:assumed-role/a/s", False),
        ("arn:aws:iam::1:role/a", "arn:aws:sts::1:assumed-role/b/a", False),
        ("arn:aws:iam::1:user/a", "arn:aws:sts::1:assumed-role/a/s", False),
        ("arn:aws:iam::1:role/a", "arn:aws:iam::1:role/path/a", False),
    ],
)
def test_a_session_is_its_roles(granted: str, principal: str, covered: bool) -> None:
    assert covers(granted, principal) is covered


def test_a_revoked_role_is_refused_at_its_next_transaction(engine: Engine, admin: Connection) -> None:
    principal = engine.add_principal(ROLE)
    execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
    with log_in(engine, principal) as reader:
        execute(reader, "SELECT 1")
        execute(admin, f"AWS IAM REVOKE reader FROM '{ROLE}'")
        with pytest.raises(psycopg.OperationalError, match="access denied") as raised:
            execute(reader, "SELECT 1")
        assert raised.value.sqlstate == "08006"
        assert raised.value.diag.message_hint == f"User: {ROLE} is not authorized to access this resource"
        execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
        assert execute(reader, "SELECT 1").fetchone() == (1,)


def test_a_revocation_that_is_rolled_back_is_none(engine: Engine, admin: Connection) -> None:
    principal = engine.add_principal(ROLE)
    execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
    with log_in(engine, principal) as reader:
        execute(admin, "BEGIN")
        execute(admin, f"AWS IAM REVOKE reader FROM '{ROLE}'")
        execute(admin, "ROLLBACK")
        assert execute(reader, "SELECT 1").fetchone() == (1,)


def test_a_policy_may_allow_less(engine: Engine, admin: Connection) -> None:
    execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
    reading, ruling = (engine.add_principal(ROLE, [action]) for action in ("DbConnect", "DbConnectAdmin"))
    resource = f"on resource: arn:aws:dsql:us-east-1:000000000000:cluster/{engine.cluster.id}"
    assert f"User: {ROLE} is not authorized to perform: dsql:DbConnectAdmin {resource}" in refusal(
        engine, reading, "admin"
    )
    assert f"User: {ROLE} is not authorized to perform: dsql:DbConnect {resource}" in refusal(engine, ruling)
    log_in(engine, reading).close()
    log_in(engine, ruling, "admin").close()


def test_an_arn_must_be_an_identitys(engine: Engine) -> None:
    with pytest.raises(EngineError, match="is not the ARN of a role, a user, or a session of a role"):
        engine.add_principal("arn:aws:s3:::bucket")


LIMITS = {
    "CREATE ROLE boss SUPERUSER": "42501",
    "CREATE ROLE boss REPLICATION": "42501",
    "CREATE ROLE boss BYPASSRLS": "42501",
    "DROP ROLE admin": "55006",
    "DROP ROLE postgres": "42501",
    "GRANT pg_read_server_files TO reader": "42501",
    "GRANT USAGE ON SCHEMA public TO reader": "0A000",
    "GRANT ALL ON SCHEMA sys TO reader": "0A000",
    "GRANT SELECT ON pg_catalog.pg_authid TO reader": "42501",
    "CREATE TABLE sys.mine (k int)": "42501",
    "CREATE TABLE pg_catalog.mine (k int)": "42501",
    "ALTER DEFAULT PRIVILEGES FOR ROLE postgres GRANT SELECT ON TABLES TO reader": "42501",
    "ALTER ROLE reader SET search_path = x": "0A000",
    "ALTER USER reader WITH PASSWORD 'x'": "0A000",
    "SET ROLE postgres": "0A000",
    "SET SESSION AUTHORIZATION reader": "0A000",
}


@pytest.mark.parametrize(("sql", "sqlstate"), LIMITS.items())
def test_admin_is_no_superuser(admin: Connection, sql: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        execute(admin, sql)
    assert raised.value.sqlstate == sqlstate, raised.value
    assert "pytest_dsql_engine" not in str(raised.value)


def test_another_role_works_where_admin_lets_it(engine: Engine, admin: Connection) -> None:
    principal = engine.add_principal(ROLE)
    execute(admin, f"AWS IAM GRANT reader TO '{ROLE}'")
    execute(admin, "CREATE TABLE t (k int PRIMARY KEY)")
    execute(admin, "CREATE SCHEMA own")
    execute(admin, "GRANT CREATE, USAGE ON SCHEMA own TO reader")
    try:
        with log_in(engine, principal) as reader:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table t"):
                execute(reader, "SELECT * FROM t")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for schema public"):
                execute(reader, "CREATE TABLE u (k int)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                execute(reader, "CREATE ROLE other")
            execute(admin, "GRANT SELECT ON t TO reader")
            assert execute(reader, "SELECT count(*) FROM t").fetchone() == (0,)
            execute(reader, "CREATE TABLE own.u (k int PRIMARY KEY)")
            execute(reader, "CREATE INDEX ASYNC ON own.u (k)")
            execute(reader, "DROP TABLE own.u")
    finally:
        execute(admin, "DROP TABLE t")
        execute(admin, "DROP SCHEMA own")
