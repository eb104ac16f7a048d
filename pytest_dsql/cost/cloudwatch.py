"""What CloudWatch says that a target has used, minute by minute.

Aurora DSQL: namespace AWS/AuroraDSQL, sums over a minute (Aurora DSQL user guide, "Monitoring with CloudWatch"). Its
table of dimensions says ResourceId, its billing page ClusterId: the latter is asked first. Aurora: namespace AWS/RDS
(Aurora user guide, "Amazon CloudWatch metrics for Amazon Aurora"); requests to the storage: every 5 minutes. Functions:
namespace AWS/Lambda (Lambda developer guide, "Types of metrics for Lambda functions").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.load.cost import Dpu

if TYPE_CHECKING:
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.cost.shape import AcuUse, AuroraIo, DsqlUse

MINUTE_S: Final = 60
_IO_PERIOD_S: Final = 300
#: Metrics of Aurora DSQL -> the part of `Dpu`; `TotalDPU` is their sum, and counts where they differ.
_TOTAL: Final = "TotalDPU"
_PARTS: Final[Mapping[str, str]] = {
    "ComputeDPU": "compute",
    "ReadDPU": "read",
    "WriteDPU": "write",
    "MultiRegionWriteDPU": "multi_region_write",
}
_DIMENSIONS: Final = ("ClusterId", "ResourceId")


@final
class DsqlMeter:
    """The DPU of the clusters of a target, by minute."""

    def __init__(self, clients: Caller, use: DsqlUse) -> None:
        self._clients = clients
        self._clusters = [(region, cluster) for region, cluster in use.clusters if cluster is not None]
        self._dimension: dict[str, str] = {}  #: cluster -> the dimension under which it has been found

    def minutes(self, start_s: float, end_s: float) -> dict[tuple[str, int], tuple[float, Dpu]]:
        """Give the total and the parts of each minute that has any, by Region and start in seconds since the epoch.

        Raises AwsError.
        """
        found: dict[tuple[str, int], tuple[float, Dpu]] = {}
        for region, cluster in self._clusters:
            for minute, metrics in self._of(region, cluster, start_s, end_s).items():
                parts = Dpu(**{part: metrics.get(metric, 0.0) for metric, part in _PARTS.items()})
                found[region, minute] = metrics.get(_TOTAL, parts.total), parts
        return found

    def _of(self, region: str, cluster: str, start_s: float, end_s: float) -> dict[int, dict[str, float]]:
        known = self._dimension.get(cluster)
        for dimension in (known,) if known else _DIMENSIONS:
            queries = [
                _query("AWS/AuroraDSQL", metric, {dimension: cluster}, "Sum", MINUTE_S) for metric in (_TOTAL, *_PARTS)
            ]
            found = _data(self._clients, region, queries, start_s, end_s)
            if found:
                self._dimension[cluster] = dimension
                return found
        return {}


def acu_minutes(clients: Caller, use: AcuUse, start_s: float, end_s: float) -> dict[int, float]:
    """Give the capacity of all instances together in each minute, in ACU. Raises AwsError."""
    if not use.instances:
        return {}
    queries = [
        _query("AWS/RDS", "ServerlessDatabaseCapacity", {"DBInstanceIdentifier": one}, "Average", MINUTE_S, one)
        for one in use.instances
    ]
    return {
        minute: sum(values.values()) for minute, values in _data(clients, use.region, queries, start_s, end_s).items()
    }


def io_periods(clients: Caller, use: AuroraIo, start_s: float, end_s: float) -> dict[int, float]:
    """Give the billed requests to a cluster's storage in each 5 minutes. Raises AwsError."""
    if use.cluster is None:
        return {}
    # A period has one value, which is the number of requests in it.
    queries = [
        _query("AWS/RDS", metric, {"DBClusterIdentifier": use.cluster}, "Average", _IO_PERIOD_S)
        for metric in ("VolumeReadIOPs", "VolumeWriteIOPs")
    ]
    found = _data(clients, use.region, queries, start_s - start_s % _IO_PERIOD_S, end_s)
    return {period: sum(values.values()) for period, values in found.items()}


def function_totals(
    clients: Caller, region: str, function: str, start_s: float, end_s: float
) -> tuple[float, float, float] | None:
    """Give a Lambda function's calls, their milliseconds, and the refused ones; None when nothing is told of it.

    Raises AwsError.
    """
    metrics = ("Invocations", "Duration", "Throttles")
    queries = [_query("AWS/Lambda", one, {"FunctionName": function}, "Sum", MINUTE_S) for one in metrics]
    found = _data(clients, region, queries, start_s, end_s)
    if not found:
        return None
    calls, busy_ms, refused = (sum(minute.get(one, 0.0) for minute in found.values()) for one in metrics)
    return calls, busy_ms, refused


def _query(
    namespace: str, metric: str, dimensions: Mapping[str, str], statistic: str, period_s: int, label: str | None = None
) -> dict[str, Any]:
    return {
        "Label": label or metric,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": period_s,
            "Stat": statistic,
        },
        "ReturnData": True,
    }


def _data(
    clients: Caller, region: str, queries: Sequence[dict[str, Any]], start_s: float, end_s: float
) -> dict[int, dict[str, float]]:
    """Ask, and give the values by period and label."""
    labels = {f"m{number}": query["Label"] for number, query in enumerate(queries)}
    results: Iterable[Mapping[str, Any]] = clients.pages(
        "cloudwatch",
        region,
        "get_metric_data",
        "MetricDataResults",
        MetricDataQueries=[{"Id": f"m{number}", **query} for number, query in enumerate(queries)],
        StartTime=datetime.fromtimestamp(start_s - start_s % MINUTE_S, UTC),
        EndTime=datetime.fromtimestamp(end_s, UTC),
        ScanBy="TimestampAscending",
    )
    found: dict[int, dict[str, float]] = {}
    for result in results:
        label = labels[result["Id"]]
        for at, value in zip(result["Timestamps"], result["Values"], strict=True):
            found.setdefault(int(at.timestamp()), {})[label] = float(value)
    return found
