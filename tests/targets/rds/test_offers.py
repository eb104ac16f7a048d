"""Version and zones: chosen of what AWS offers, and refused, before anything is created, where it doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.targets.rds.offers import AURORA, RDS, newest_common_version, zones_for
from tests.targets.rds import stand_ins
from tests.targets.rds.conftest import begin

pytestmark = pytest.mark.usefixtures("account", "offers")


def test_the_newest_version_that_both_have() -> None:
    assert newest_common_version(begin("rds-multi-az")) == "16.10"


def test_no_version_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stand_ins.MINORS, "postgres", ("16.99",))
    with pytest.raises(UsageError, match="no minor version of PostgreSQL 16 in common in us-east-1"):
        newest_common_version(begin("rds-multi-az"))


@pytest.mark.parametrize(
    ("asked", "zones"),
    [
        ({"engine": RDS, "instance_class": "db.r6g.xlarge", "storage_type": "gp3"}, "abc"),
        ({"engine": RDS, "instance_class": "db.r6g.large", "storage_type": "gp3"}, "bc"),
        ({"engine": AURORA, "instance_class": "db.serverless"}, "ab"),
        ({"engine": AURORA, "instance_class": "db.r6g.xlarge", "wanted": ("us-east-1c", "us-east-1a")}, "ca"),
    ],
)
def test_the_zones_that_have_the_class(asked: dict[str, Any], zones: str) -> None:
    found = zones_for(begin("rds-multi-az"), version="16.10", **asked)
    assert found == tuple(f"us-east-1{letter}" for letter in zones)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"instance_class": "db.r9z.xlarge"}, "us-east-1 has no db.r9z.xlarge for postgres 16.10: choose another"),
        ({"instance_class": "db.r6g.large", "storage_type": "io1"}, "with io1 storage for postgres 16.10: it has gp3"),
        ({"wanted": ("us-east-1a", "us-east-1f")}, "us-east-1f has no db.r6g.xlarge with gp3 storage"),
        ({"instance_class": "db.t4g.micro"}, "needs two Availability Zones, and us-east-1 offers it in 1"),
        ({"version": "16.9999"}, "has no db.r6g.xlarge for postgres 16.9999"),
    ],
)
def test_what_is_not_offered_is_said(asked: dict[str, Any], said: str) -> None:
    usual = {"engine": RDS, "version": "16.10", "instance_class": "db.r6g.xlarge", "storage_type": "gp3"}
    with pytest.raises(UsageError) as refused:
        zones_for(begin("rds-multi-az"), **(usual | asked))
    assert said in str(refused.value)
