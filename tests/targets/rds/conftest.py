"""An account of moto's with what moto lacks, a PostgreSQL in place of its databases, and a clock that doesn't wait."""

from __future__ import annotations

from collections.abc import Iterator

import botocore.handlers
import pytest

from pytest_dsql.aws.run import AwsRun
from tests.aws.clusters import Hours
from tests.plain_postgres import PlainPostgres, tls_installation
from tests.targets.rds import stand_ins

REGION = "us-east-1"
GENERATOR = "203.0.113.7"
RUN_ID = "20261130T100000Z-abc123"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PlainPostgres]:
    """The PostgreSQL that all databases of these tests are."""
    if tls_installation() is None:
        pytest.skip("needs a PostgreSQL with TLS on this machine")
    with stand_ins.database_of_moto() as postgres:
        yield postgres


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What moto lacks, without a database."""
    known = [*botocore.handlers.BUILTIN_HANDLERS, *stand_ins.handlers("localhost", 5432)]
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", known)


@pytest.fixture
def databases(postgres: PlainPostgres, monkeypatch: pytest.MonkeyPatch) -> PlainPostgres:
    """What moto lacks, and every database is the PostgreSQL."""
    known = [*botocore.handlers.BUILTIN_HANDLERS, *stand_ins.handlers(postgres.host, postgres.port)]
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", known)
    return postgres


def begin(owner: str) -> AwsRun:
    """Begin a target's part of a run, with a clock that doesn't wait."""
    run = AwsRun.begin(RUN_ID, owner, region=REGION)
    run.clock = Hours().clock()
    return run
