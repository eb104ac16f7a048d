"""Clusters of moto's account, as a run creates them, and a clock that doesn't wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.aws.waiting import Clock

REGION = "us-east-1"


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)
        self.slept: list[float] = []

    def clock(self) -> Clock:
        return Clock(monotonic=self.monotonic, sleep=self.sleep, now=lambda: self.at)

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


def cluster_call(run: AwsRun) -> Callable[[Entry], Made]:
    def call(entry: Entry) -> Made:
        made = run.clients.call(
            "dsql",
            REGION,
            "create_cluster",
            deletionProtectionEnabled=False,
            clientToken=entry.token,
            tags=run.tags(entry),
        )
        return Made(made["arn"])

    return call


def clusters(run: AwsRun) -> list[Any]:
    return list(run.clients.pages("dsql", REGION, "list_clusters", "clusters"))


def refusing(failure: Failure, code: str = "No") -> AwsError:
    return AwsError("no", failure=failure, code=code, action="dsql:CreateCluster", region=REGION)
