"""What a runner is paid for, before it is started: for the estimate that is compared with the budget.

Sources: EC2 user guide, "Spot Instances" (at most the on-demand price); Amazon Linux 2023 user guide (a root volume of
8 GiB, gp3); Lambda's and Step Functions' pricing pages (GB-seconds and requests; transitions of standard workflows).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.cost.shape import CostShape, Fixed
from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.cost.work import work_of
from pytest_dsql.runner.lambda_fleet import MEMORY_MB
from pytest_dsql.runner.lambda_fleet import OWNER as LAMBDA
from pytest_dsql.runner.options import Ec2Options

if TYPE_CHECKING:
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.cost.work import PlannedTest
    from pytest_dsql.experiment.plans import Plan
    from pytest_dsql.settings import Settings

#: How long instances take to start, to be made ready and to end: as often as another one may go on, at most.
_COMING_S: Final = 600.0
_DISK_GB: Final = 8.0
#: Function seconds of a call beside its operations: the start of a function, connecting.
_STARTING_S: Final = 1.0
#: State transitions of one call: its child workflow's start, the call, the end.
_TRANSITIONS: Final = 3


def shape_of_runner(settings: Settings, plan: Plan, tests: Iterable[PlannedTest], region: str) -> CostShape | None:
    """Return what the run's runner will be paid for; None where it starts nothing. Raises UsageError."""
    if settings.runner == "ec2":
        return _instances(settings, region)
    if settings.runner == "lambda":
        return _functions(plan, [one for one in tests if "dsql_functions" in one.fixtures], region)
    return None


def told(
    settings: Settings, region: str, target: tuple[CostShape, float] | None, estimates: Mapping[str, float]
) -> dict[str, Any]:
    """Return what the session on an instance has to know for its budget, as JSON: what it can't find out there.

    `target`: what of a created target is paid for, and since when. The instances are counted from now on.
    """
    value: dict[str, Any] = {
        "estimates": dict(estimates),
        "machines": _instances(settings, region).to_json(),
        "began_s": time.time(),
    }
    if target is not None:
        value |= {"target": target[0].to_json(), "target_began_s": target[1]}
    return value


def target_of(cost: Mapping[str, Any]) -> tuple[CostShape, float] | None:
    """Read what of a created target is paid for, and since when."""
    return (CostShape.from_json(cost["target"]), float(cost["target_began_s"])) if "target" in cost else None


def count_machines(cost: Mapping[str, Any], budget: Budget) -> None:
    """Have a budget count what the machines cost that make the load: one at a time, since the first one started."""
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.meters import AwsMeter
    from pytest_dsql.cost.price_list import PriceList
    from pytest_dsql.cost.prices import Prices

    if not cost:
        return
    budget.estimates = cost["estimates"]
    prices = Prices(PriceList(Clients()), assume=True)
    meter = AwsMeter(CostShape.from_json(cost["machines"]), prices, None, began_s=float(cost["began_s"]))
    budget.count(meter.usd)


def _instances(settings: Settings, region: str) -> CostShape:
    """One at a time. Of Spot the price isn't known before: the most that it can be is on demand."""
    from pytest_dsql.runner.ec2 import OWNER

    options = Ec2Options.of(settings.runner_option, plan=settings.plan)
    fixed = (
        Fixed(f"ec2/{options.type}", region),
        Fixed("ebs-gp3", region, _DISK_GB),
        Fixed("public-ipv4", region),
    )
    return CostShape(OWNER, fixed=fixed, coming_s=_COMING_S * (1 + options.restarts))


def _functions(plan: Plan, tests: list[PlannedTest], region: str) -> CostShape | None:
    if not tests:
        return None
    work = work_of(tests, plan, plan.scale)
    # Each operation over a new connection is a call of its own, and as many are made over kept ones beside it.
    calls = 2 * work.connections
    seconds = work.attempts / unit_costs().dsql_tps_per_connection + calls * _STARTING_S
    fixed = (
        Fixed("lambda-gb-second", region, round(seconds * MEMORY_MB / 1024, 1)),
        Fixed("lambda-requests", region, round(calls)),
        Fixed("step-functions-transitions", region, round(calls * _TRANSITIONS)),
    )
    return CostShape(LAMBDA, fixed=fixed)
