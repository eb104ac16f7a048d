"""IAM authentication: a role of its own in the database, and tokens that PostgreSQL has checked at every login."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed, ErrorClass
from pytest_dsql.targets.rds.database import DATABASE
from pytest_dsql.targets.rds.reaching import IAM_ROLE
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import rds_of
from tests.targets.rds.conftest import REGION
from tests.targets.rds.opening import opened
from tests.targets.rds.token_checker import TokenChecker


@pytest.fixture
def checker(account: None, databases: PlainPostgres) -> Iterator[TokenChecker]:
    """PostgreSQL asks this one about the role's passwords, as RDS's asks PAM."""
    postgres = databases
    program = postgres.installation.bin_directory / "postgres"
    if b"libldap" not in subprocess.run(["ldd", program], check=True, capture_output=True).stdout:
        pytest.skip("this PostgreSQL can't ask a directory server about passwords")
    # The account's keys: moto puts its own into the environment.
    keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    checker = TokenChecker(*keys, REGION, f"{postgres.host}:{postgres.port}")
    # The privileges that the role gets are in the database that RDS makes.
    login = replace(postgres, dbname=DATABASE).dsn
    with checker.served() as port, psycopg.connect(login, autocommit=True) as superuser:
        row = superuser.execute("SELECT current_setting('hba_file'), pg_read_file(current_setting('hba_file'))")
        file, before = row.fetchone() or ("", "")
        ours = f'hostssl all {IAM_ROLE} all ldap ldapserver=127.0.0.1 ldapport={port} ldapprefix="" ldapsuffix=""'
        rewrite(superuser, file, f"{ours}\n{before}")
        try:
            yield checker
        finally:
            rewrite(superuser, file, before)
            superuser.execute(f"DROP OWNED BY {IAM_ROLE}".encode())
            superuser.execute(f"DROP ROLE {IAM_ROLE}".encode())


def rewrite(superuser: psycopg.Connection[Any], file: str, text: str) -> None:
    """Write the server's own file through the server, which may run as another user, and have it read."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    superuser.execute("CREATE TEMPORARY TABLE line (number serial, text text)")
    with superuser.cursor() as cursor:
        cursor.executemany("INSERT INTO line (text) VALUES (%s)", [(one,) for one in lines])
    quoted = file.replace("'", "''")
    # A quote that no line has: the lines are written as they are.
    copy = (
        f"COPY (SELECT text FROM line ORDER BY number) TO '{quoted}' (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"
    )
    superuser.execute(copy.encode())
    superuser.execute("DROP TABLE line")
    wrong = superuser.execute("SELECT error FROM pg_hba_file_rules WHERE error IS NOT NULL").fetchall()
    assert wrong == []
    loaded = superuser.execute("SELECT pg_conf_load_time()").fetchone()
    superuser.execute("SELECT pg_reload_conf()")
    # The server reads it when it gets to it; who reads the time reads what the server has told this session since.
    deadline = time.monotonic() + 300
    while superuser.execute("SELECT pg_conf_load_time()").fetchone() == loaded:
        assert time.monotonic() < deadline, "the server did not read its file again"


@pytest.mark.parametrize("target", ["rds-multi-az", "aurora-serverless"])
def test_logins_are_with_tokens(target: str, account: None, databases: PlainPostgres, checker: TokenChecker) -> None:
    made = opened(target, databases, auth="iam")
    endpoint = made.endpoint
    assert isinstance(endpoint.auth, IamAuth)
    assert (endpoint.user, endpoint.auth.service) == (IAM_ROLE, "rds-db")
    before = checker.accepted
    with made.connect() as connection:
        assert connection.execute("SELECT current_user").fetchone() == (IAM_ROLE,)
        connection.execute("CREATE SCHEMA its_own")
        connection.execute("CREATE TABLE public.its_own (id int)")
        connection.execute("DROP SCHEMA its_own")
        connection.execute("DROP TABLE public.its_own")
    assert checker.accepted == before + 1
    if target == "rds-multi-az":
        [instance] = rds_of(REGION).describe_db_instances()["DBInstances"]
        assert instance["IAMDatabaseAuthenticationEnabled"]
    else:
        [cluster] = rds_of(REGION).describe_db_clusters()["DBClusters"]
        assert cluster["IAMDatabaseAuthenticationEnabled"]


def test_a_second_process_of_the_run_finds_the_role(
    account: None, databases: PlainPostgres, checker: TokenChecker
) -> None:
    first = opened("rds-multi-az", databases, auth="iam")
    assert opened("rds-multi-az", databases, auth="iam").endpoint == first.endpoint


def test_a_refused_token_is_signed_anew_and_then_said(
    account: None, databases: PlainPostgres, checker: TokenChecker
) -> None:
    made = opened("rds-multi-az", databases, auth="iam")
    tokens = TokenSource(made.endpoint)
    dial(made.endpoint, tokens)[0].close()
    assert tokens.signed == 1
    checker.host = "another.host:5432"  # tokens are good for one database alone
    with pytest.raises(ConnectionFailed) as refused:
        dial(made.endpoint, tokens)
    assert tokens.signed == 2
    assert refused.value.error_class is ErrorClass.AUTH
    assert "X-Amz" not in str(refused.value)
