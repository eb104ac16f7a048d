"""Puts metrics into the account, as Aurora DSQL and Aurora publish them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pytest_dsql.aws.sessions import Clients

REGION = "ap-northeast-2"
CLUSTER = "abcdefghijklmnopqrstuvwxyz"
#: The start of a minute, and of five.
START = 1_790_000_100.0
assert START % 300 == 0


def put(
    clients: Clients, namespace: str, metric: str, dimensions: dict[str, str], values: dict[float, float], **more: Any
) -> None:
    """Put values at times."""
    clients.call(
        "cloudwatch",
        more.get("region", REGION),
        "put_metric_data",
        Namespace=namespace,
        MetricData=[
            {
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
                "Timestamp": datetime.fromtimestamp(at, UTC),
                "Value": value,
            }
            for at, value in values.items()
        ],
    )


def put_dpu(
    clients: Clients,
    minutes: dict[int, float],
    *,
    dimension: str = "ClusterId",
    cluster: str = CLUSTER,
    region: str = REGION,
) -> None:
    """Put the DPU of minutes, counted from `START`: a tenth computing, three tenths reading, the rest writing."""
    shares = {"TotalDPU": 1.0, "ComputeDPU": 0.1, "ReadDPU": 0.3, "WriteDPU": 0.6, "MultiRegionWriteDPU": 0.0}
    for metric, share in shares.items():
        values = {START + 60 * minute: dpu * share for minute, dpu in minutes.items()}
        put(clients, "AWS/AuroraDSQL", metric, {dimension: cluster}, values, region=region)
