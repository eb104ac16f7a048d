"""The target `aurora-provisioned`: Aurora PostgreSQL 16, a writer and a reader of one class in two zones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dsql.targets.created import options_of
from pytest_dsql.targets.rds.costs import shape_of
from pytest_dsql.targets.rds.grants import CLUSTER
from pytest_dsql.targets.rds.kinds import AURORA_PROVISIONED
from pytest_dsql.targets.rds.making import open_database
from pytest_dsql.targets.rds.options import parse

if TYPE_CHECKING:
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

OPTIONS: Final = AURORA_PROVISIONED.keys
ACTIONS: Final = CLUSTER


def check(settings: Settings) -> None:
    """See that the options fit together."""
    parse(settings.target, options_of(settings), region=settings.region)


def cost_shape(settings: Settings, region: str) -> CostShape:
    """Return what of it will be paid for."""
    return shape_of(AURORA_PROVISIONED, parse(settings.target, options_of(settings)), region)


def open(settings: Settings, run: AwsRun) -> Target:  # noqa: A001 - the word of every target's module
    """Create the cluster with its network, and wait until it answers a query."""
    return open_database(settings, run, AURORA_PROVISIONED)
