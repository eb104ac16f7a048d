"""What importing the parts costs: a run that connects nowhere loads neither the driver nor the AWS library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("psycopg", "psycopg_pool", "botocore", "boto3", "asyncio", "ssl", "ctypes", "importlib.metadata")


@pytest.mark.parametrize("module", ["endpoint", "token", "credentials"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, pytest_dsql.connect.{module}; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert not set(HEAVY).intersection(loaded)


def test_signing_with_given_keys_loads_no_session() -> None:
    code = (
        "import sys\n"
        "from pytest_dsql.connect.endpoint import Endpoint, IamAuth\n"
        "from pytest_dsql.connect.token import TokenSource\n"
        "auth = IamAuth(access_key_id='AKIAX', secret_access_key='s')\n"
        "TokenSource(Endpoint('localhost', region='eu-central-1', auth=auth)).token()\n"
        "print(*sys.modules)\n"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "botocore.auth" in loaded
    assert not {"botocore.session", "boto3", "psycopg"}.intersection(loaded)
