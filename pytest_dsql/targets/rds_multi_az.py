"""The target `rds-multi-az`: RDS for PostgreSQL 16, one instance with a standby in another zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dsql.targets.created import options_of
from pytest_dsql.targets.rds.costs import shape_of
from pytest_dsql.targets.rds.grants import INSTANCE
from pytest_dsql.targets.rds.kinds import RDS_MULTI_AZ
from pytest_dsql.targets.rds.making import open_database
from pytest_dsql.targets.rds.options import parse

if TYPE_CHECKING:
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

OPTIONS: Final = RDS_MULTI_AZ.keys
ACTIONS: Final = INSTANCE


def check(settings: Settings) -> None:
    """See that the options fit together."""
    parse(settings.target, options_of(settings), region=settings.region)


def cost_shape(settings: Settings, region: str) -> CostShape:
    """Return what of it will be paid for."""
    return shape_of(RDS_MULTI_AZ, parse(settings.target, options_of(settings)), region)


def open(settings: Settings, run: AwsRun) -> Target:  # noqa: A001 - the word of every target's module
    """Create the instance with its network, and wait until it answers a query."""
    return open_database(settings, run, RDS_MULTI_AZ)
