"""Cost Explorer: by the run's tag where it is active, else the account's usage types, and it says so.

moto has no ListCostAllocationTags, and its GetCostAndUsage neither filters nor groups: both are stubbed in the form of
the Cost Explorer API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.bill import ask_bill, tag_is_active
from tests.cost.conftest import Answers

Answering = Callable[[Answers], list[tuple[str, Mapping[str, Any]]]]
RUN = "20261130T100000Z-abcdef"
STARTED = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)
ENDED = datetime(2026, 12, 1, 1, 0, tzinfo=UTC)


def group(service: str, usage_type: str, usd: str, quantity: str) -> dict[str, Any]:
    return {
        "Keys": [service, usage_type],
        "Metrics": {
            "UnblendedCost": {"Amount": usd, "Unit": "USD"},
            "UsageQuantity": {"Amount": quantity, "Unit": "DPU"},
        },
    }


DSQL = "APN2-DSQL-DistributedProcessingUnits"
DAYS = [
    [group("Aurora DSQL", DSQL, "1.5", "150000"), group("EC2", "APN2-BoxUsage:m5.large", "9", "90")],
    [group("Aurora DSQL", DSQL, "0.5", "50000")],
]


def active(*keys: str) -> Answers:
    return {
        "ListCostAllocationTags": lambda _parameters: {
            "CostAllocationTags": [{"TagKey": key, "Type": "UserDefined", "Status": "Active"} for key in keys]
        }
    }


def billed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One day on each page."""
    page = int(parameters.get("NextPageToken", "0"))
    day = {"TimePeriod": {"Start": "s", "End": "e"}, "Estimated": page == 1, "Groups": DAYS[page]}
    return {"ResultsByTime": [day], **({"NextPageToken": "1"} if page == 0 else {})}


def test_by_the_tag_all_of_it_is_the_runs(clients: Clients, answering: Answering) -> None:
    calls = answering({**active("pytest-dsql:run"), "GetCostAndUsage": billed})
    bill = ask_bill(clients, RUN, STARTED, ENDED, ["dsql-dpu"])
    assert bill.by_tag
    assert bill.estimated
    assert (bill.first, bill.last) == (date(2026, 11, 30), date(2026, 12, 1))
    assert bill.usd == pytest.approx(11.0)
    assert [(one.usage_type, one.quantity, one.unit) for one in bill.lines] == [
        ("APN2-BoxUsage:m5.large", 90.0, "DPU"),
        (DSQL, 200_000.0, "DPU"),
    ]
    parameters = calls[1][1]
    assert parameters["Filter"]["Tags"] == {"Key": "pytest-dsql:run", "Values": [RUN], "MatchOptions": ["EQUALS"]}
    # The end is exclusive.
    assert parameters["TimePeriod"] == {"Start": "2026-11-30", "End": "2026-12-02"}


@pytest.mark.parametrize("keys", [(), ("team",)])
def test_without_the_tag_only_usage_types_of_the_target_count(
    clients: Clients, answering: Answering, keys: tuple[str, ...]
) -> None:
    calls = answering({**active(*keys), "GetCostAndUsage": billed})
    bill = ask_bill(clients, RUN, STARTED, ENDED, ["dsql-dpu", "dsql-storage"])
    assert not bill.by_tag
    assert bill.usd == pytest.approx(2.0)
    assert "Filter" not in calls[1][1]
    assert not tag_is_active(clients)
