"""A kept database: what the run says of it is enough to attach to it, and names no password."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.targets import created
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.account import contents
from tests.targets.rds.conftest import RUN_ID, begin
from tests.targets.rds.opening import settings_for
from tests.targets.rds.stand_ins import MOTO_PASSWORD


@pytest.mark.usefixtures("account")
def test_a_kept_database_can_be_attached_to(databases: PlainPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    run = begin("rds-multi-az")
    run.say = said.append
    monkeypatch.setattr(created, "begin", lambda _chosen, **_ignored: run)
    settings = replace(settings_for("rds-multi-az", databases), keep=True)
    created.open_created(settings, run_id=RUN_ID).close()
    assert len(contents()["instances"]) == 1
    [line] = [one for one in said if one.startswith("kept rds-multi-az until ")]
    assert MOTO_PASSWORD not in line
    found = re.search(r"--dsql-dsn '([^']*)' and its password in PGPASSWORD, remove with `pytest-dsql reap", line)
    assert found, line
    attached = Endpoint.from_dsn(found[1])
    assert (attached.host, attached.port, attached.user) == (databases.host, databases.port, "pytest_dsql")
    assert (attached.dbname, attached.sslmode) == ("pytest_dsql", "verify-full")
    assert attached.sslrootcert == databases.sslrootcert
