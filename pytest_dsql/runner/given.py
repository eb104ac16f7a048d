"""The target of a session that was sent to another machine: it exists already, and others remove it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsql.errors import DsqlError
from pytest_dsql.runner.job import VARIABLE, Job, target_of

if TYPE_CHECKING:
    from pytest_dsql.targets.target import Target


def open_given(job: Job) -> Target:
    """Make the target of what the job says. Raises AwsError, ConnectionFailed or DsqlError."""
    return target_of(job, folder=Path(os.environ[VARIABLE]).parent, password=_password)


def _password(secret: str, region: str) -> str:
    """Read a password that RDS keeps (RDS user guide, "Password management with Amazon RDS and Secrets Manager")."""
    from pytest_dsql.aws.sessions import Clients

    text = Clients().call("secretsmanager", region, "get_secret_value", SecretId=secret)["SecretString"]
    try:
        return str(json.loads(text)["password"])
    except (ValueError, KeyError, TypeError):
        # Nothing of it is shown.
        raise DsqlError("the secret that RDS made for the database holds no password under that name") from None
