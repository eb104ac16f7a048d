"""What AWS has billed: Cost Explorer, a day after the run.

Cost Explorer knows a tag only where it was activated as a cost allocation tag (AWS Billing user guide, "Activating
user-defined cost allocation tags"), and only for what was used after that. Else the days of the run can be looked at
for the whole account, which others may use, too. Each request costs 0.01 USD (Cost Management pricing).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.resources import RUN_TAG
from pytest_dsql.cost.price_list import usage_types

if TYPE_CHECKING:
    from pytest_dsql.cost.price_list import Caller

#: Cost Explorer's only endpoint (botocore's endpoints of `ce`).
_REGION: Final = "us-east-1"
#: "Cost Explorer updates your cost data at least once every 24 hours" (Cost Management user guide).
COMPLETE_AFTER: Final = timedelta(hours=24)


@final
@dataclass(frozen=True, slots=True)
class BillLine:
    """One usage type of the bill."""

    service: str
    usage_type: str
    quantity: float
    unit: str
    usd: float


@final
@dataclass(frozen=True, slots=True)
class Bill:
    """What was billed for the days of a run."""

    first: date
    last: date
    by_tag: bool  #: False: the tag is not active, and the lines are the whole account's
    estimated: bool  #: Cost Explorer itself calls it an estimate until the month is closed
    lines: tuple[BillLine, ...]

    @property
    def usd(self) -> float:
        """All of it."""
        return sum(line.usd for line in self.lines)


def tag_is_active(clients: Caller) -> bool:
    """Tell whether the tag of runs is active as a cost allocation tag. Raises AwsError."""
    found = clients.call(
        "ce", _REGION, "list_cost_allocation_tags", Status="Active", TagKeys=[RUN_TAG], Type="UserDefined"
    )
    return any(one.get("TagKey") == RUN_TAG for one in found.get("CostAllocationTags", ()))


def complete_at(ended: datetime) -> datetime:
    """Tell from when on Cost Explorer can be expected to know all of a run."""
    return ended + COMPLETE_AFTER


def ask_bill(clients: Caller, run: str, started: datetime, ended: datetime, items: Iterable[str]) -> Bill:
    """Ask what the days of a run were billed: by the run's tag where it is active, else the items of the account.

    Raises AwsError.
    """
    first, last = started.astimezone(UTC).date(), ended.astimezone(UTC).date()
    by_tag = tag_is_active(clients)
    parameters: dict[str, Any] = {
        "TimePeriod": {"Start": first.isoformat(), "End": (last + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost", "UsageQuantity"],
        "GroupBy": [{"Type": "DIMENSION", "Key": "SERVICE"}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }
    if by_tag:
        parameters["Filter"] = {"Tags": {"Key": RUN_TAG, "Values": [run], "MatchOptions": ["EQUALS"]}}
    wanted = usage_types(items)
    sums: dict[tuple[str, str], tuple[float, str, float]] = {}
    estimated = False
    token: str | None = None
    while True:
        page = clients.call(
            "ce", _REGION, "get_cost_and_usage", **parameters, **({"NextPageToken": token} if token else {})
        )
        for day in page["ResultsByTime"]:
            estimated = estimated or bool(day.get("Estimated"))
            for group in day["Groups"]:
                service, usage_type = group["Keys"]
                if not by_tag and not wanted.fullmatch(usage_type):
                    continue
                cost, used = group["Metrics"]["UnblendedCost"], group["Metrics"]["UsageQuantity"]
                quantity, unit, usd = sums.get((service, usage_type), (0.0, str(used.get("Unit", "")), 0.0))
                sums[service, usage_type] = quantity + float(used["Amount"]), unit, usd + float(cost["Amount"])
        token = page.get("NextPageToken")
        if not token:
            break
    lines = tuple(
        BillLine(service, usage_type, quantity, unit, usd)
        for (service, usage_type), (quantity, unit, usd) in sorted(sums.items(), key=lambda one: -one[1][2])
    )
    return Bill(first, last, by_tag, estimated, lines)
