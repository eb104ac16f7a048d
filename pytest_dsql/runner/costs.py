"""What a runner is paid for, before it is started: for the estimate that is compared with the budget.

Sources: EC2 user guide, "Spot Instances" (at most the on-demand price); Amazon Linux 2023 user guide (a root volume of
8 GiB, gp3); Lambda's and Step Functions' pricing pages (GB-seconds and requests; transitions of standard workflows).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.cost.functions import FunctionMeter, Work
from pytest_dsql.cost.shape import CostShape, Fixed
from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.cost.work import work_of
from pytest_dsql.runner.lambda_fleet import MEMORY_MB
from pytest_dsql.runner.lambda_fleet import OWNER as LAMBDA
from pytest_dsql.runner.options import Ec2Options

if TYPE_CHECKING:
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.cost.meters import AwsMeter
    from pytest_dsql.cost.work import PlannedTest
    from pytest_dsql.experiment.plans import Plan
    from pytest_dsql.runner.lambda_fleet import LambdaFleet
    from pytest_dsql.settings import Settings

#: How long instances take to start, to be made ready and to end: as often as another one may go on, at most.
_COMING_S: Final = 600.0
_DISK_GB: Final = 8.0


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
    budget.count_maker(_Machines(meter))


@final
class _Machines:
    """What a session on an instance says of the instances that make its load."""

    def __init__(self, meter: AwsMeter) -> None:
        self._meter = meter

    def usd(self) -> float:
        """USD so far, by time."""
        return self._meter.usd()

    def facts(self) -> dict[str, Any]:
        """As `cost.books.Maker.facts`."""
        return {"runner_usd": round(self.usd(), 6), "runner_source": "time"}


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
    busy_s = work.attempts / unit_costs().dsql_tps_per_connection
    # Each call may be a new function's first one, or connect, which takes about as long.
    return Work(calls=calls, busy_s=busy_s, starts=calls).shape(LAMBDA, region, MEMORY_MB)


def functions_counted(fleet: LambdaFleet, settings: Settings, budget: Budget, *, processes: int) -> FunctionMeter:
    """Have a budget count what the functions cost from now on, and return what is to be told of their work."""
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.price_list import PriceList
    from pytest_dsql.cost.prices import Prices

    clients = Clients(profile=settings.profile, role=settings.role)
    meter = FunctionMeter(
        LAMBDA,
        region=fleet.region,
        function=fleet.function,
        memory_mb=MEMORY_MB,
        prices=Prices(PriceList(clients), assume=True),
        clients=clients,
        began_s=time.time(),
        processes=processes,
    )
    budget.count_maker(meter)
    return meter
