"""How a database of RDS is reached: the password that RDS keeps, the certificate to expect, a role for IAM tokens.

Sources: RDS user guide, "Password management with Amazon RDS and AWS Secrets Manager", "IAM database authentication".
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth
from pytest_dsql.connect.rds_root import rds_root
from pytest_dsql.errors import ConnectionFailed, DsqlError
from pytest_dsql.targets.rds.database import DATABASE, MASTER

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.targets.rds.database import Database
    from pytest_dsql.targets.rds.options import RdsOptions

#: The role that logs in with IAM tokens. It isn't the master: `rds_iam` takes the password's place.
IAM_ROLE: Final = "pytest_dsql_iam"
#: How long the name of a new database may be unknown to resolvers, or its port closed.
_REACHABLE_S: Final = 300.0
#: One statement each: run again, they change nothing. From PostgreSQL 16 a role that may create roles is not a
#: superuser, so what the tests need is granted.
_MAKE_IAM_ROLE: Final = (
    f"DO $$ BEGIN IF to_regrole('{IAM_ROLE}') IS NULL THEN CREATE ROLE {IAM_ROLE} LOGIN; END IF; END $$",
    f"GRANT rds_iam TO {IAM_ROLE}",
    f"GRANT CREATE, TEMPORARY ON DATABASE {DATABASE} TO {IAM_ROLE}",
    f"GRANT CREATE, USAGE ON SCHEMA public TO {IAM_ROLE}",
)


def endpoint_of(run: AwsRun, options: RdsOptions, database: Database) -> Endpoint:
    """Return the endpoint of a database: as the master with its password, or as the role for IAM tokens.

    Connects once, so that it is known to work. Raises AwsError, ConnectionFailed, DsqlError.
    """
    endpoint = Endpoint(
        host=database.host,
        hostaddr=options.hostaddr,
        port=options.port or database.port,
        dbname=DATABASE,
        user=MASTER,
        region=run.region,
        sslmode="verify-full",
        sslrootcert=str(options.root or rds_root(run.region)),
        auth=PasswordAuth(password_of(run, database.secret)),
        dialect="postgresql",
    )
    with reached(run, endpoint) as connection:
        if options.auth == "iam":
            for statement in _MAKE_IAM_ROLE:
                connection.execute(statement.encode())
    if options.auth == "password":
        return endpoint.resolved()
    endpoint = replace(endpoint, user=IAM_ROLE, auth=iam(run))
    reached(run, endpoint).close()
    return endpoint.resolved()


def iam(run: AwsRun) -> IamAuth:
    """Return tokens of RDS, signed with the run's credentials."""
    return IamAuth(profile=run.clients.profile, role=run.clients.role, service="rds-db")


def password_of(run: AwsRun, secret: str) -> str:
    """Return the master's password, which RDS keeps in Secrets Manager. Raises AwsError, DsqlError."""
    text = run.clients.call("secretsmanager", run.region, "get_secret_value", SecretId=secret)["SecretString"]
    try:
        return str(json.loads(text)["password"])
    except (ValueError, KeyError, TypeError):
        # Nothing of it is shown.
        raise DsqlError("the secret that RDS made for the database holds no password under that name") from None


def reached(run: AwsRun, endpoint: Endpoint, *, limit_s: float = _REACHABLE_S) -> psycopg.Connection[Any]:
    """Connect, patiently while the new host name is not known yet or nobody listens behind it.

    A refused password or an unknown certificate is not waited out. Raises ConnectionFailed.
    """
    from pytest_dsql.connect.dialer import dial
    from pytest_dsql.connect.token import TokenSource

    tokens = TokenSource(endpoint)
    end = run.clock.monotonic() + limit_s
    while True:
        try:
            return dial(endpoint, tokens)[0]
        except ConnectionFailed as error:
            if error.phase not in ("resolve", "tcp") or run.clock.monotonic() >= end:
                raise
        run.clock.sleep(5.0)


def server_of(run: AwsRun, endpoint: Endpoint) -> str:
    """Return what the server says of its version. Raises ConnectionFailed."""
    with reached(run, endpoint) as connection:
        row = connection.execute("SELECT version()").fetchone()
    return str(row[0]) if row else ""
