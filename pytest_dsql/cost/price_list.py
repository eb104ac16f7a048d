"""Asks AWS's Price List API what an item costs in a Region.

`GetProducts` (AWS Billing user guide, "Using the AWS Price List Query API") finds products by attributes; what is one
item here is one usage type there, behind a prefix for the Region (`APN2-`, and `USE1-` or none in us-east-1).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol, final

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.cost.prices import UNITS, Price
from pytest_dsql.errors import CredentialsError

_LOG: Final = logging.getLogger(__name__)

#: The API answers in a few Regions only (botocore's endpoints of `api.pricing`), for all.
_REGION: Final = "us-east-1"


class Caller(Protocol):
    """What is asked of `aws.sessions.Clients`."""

    def call(self, service: str, region: str, operation: str, /, **parameters: Any) -> dict[str, Any]:
        """Call an operation."""

    def pages(self, service: str, region: str, operation: str, key: str, /, **parameters: Any) -> Iterator[Any]:
        """Give the items of all pages of an answer."""


@final
@dataclass(frozen=True, slots=True)
class _Sold:
    """How the list names an item: the service's code, the usage type behind the Region's prefix, other attributes."""

    service: str
    usage_type: str
    unit: str
    attributes: Mapping[str, str] = field(default_factory=dict)


#: Items by the part before the slash; `{}` stands for the part behind it. The codes and usage types of Aurora DSQL and
#: RDS are those of published bills and price lists (`APN2-Aurora:ServerlessV2Usage`, service code AuroraDSQL).
_SOLD: Final[Mapping[str, _Sold]] = {
    "dsql-dpu": _Sold("AuroraDSQL", r"DSQL-DistributedProcessingUnits", "million DPU"),
    "dsql-storage": _Sold("AuroraDSQL", r"DSQL-Storage-ByteHrs", "GB-month"),
    "aurora-acu": _Sold("AmazonRDS", r"Aurora:ServerlessV2Usage", "hour", {"databaseEngine": "Aurora PostgreSQL"}),
    "aurora-instance": _Sold(
        # I/O-Optimized has a usage type of its own (InstanceUsageIOOptimized:...)
        "AmazonRDS",
        r"InstanceUsage:db\..*",
        "hour",
        {"instanceType": "{}", "databaseEngine": "Aurora PostgreSQL"},
    ),
    "aurora-instance-iopt": _Sold(
        "AmazonRDS",
        r"InstanceUsageIOOptimized:db\..*",
        "hour",
        {"instanceType": "{}", "databaseEngine": "Aurora PostgreSQL"},
    ),
    "aurora-acu-iopt": _Sold(
        "AmazonRDS", r"Aurora:ServerlessV2IOOptimizedUsage", "hour", {"databaseEngine": "Aurora PostgreSQL"}
    ),
    "aurora-storage-iopt": _Sold("AmazonRDS", r"Aurora:IO-OptimizedStorageUsage", "GB-month"),
    "aurora-storage": _Sold("AmazonRDS", r"Aurora:StorageUsage", "GB-month"),
    "aurora-io": _Sold("AmazonRDS", r"Aurora:StorageIOUsage", "million"),
    "rds-multi-az": _Sold(
        "AmazonRDS",
        r"Multi-AZUsage:db\..*",
        "hour",
        {"instanceType": "{}", "databaseEngine": "PostgreSQL", "deploymentOption": "Multi-AZ"},
    ),
    "rds-multi-az-gp3": _Sold("AmazonRDS", r"RDS:Multi-AZ-GP3-Storage", "GB-month"),
    "rds-multi-az-gp3-iops": _Sold("AmazonRDS", r"RDS:Multi-AZ-GP3-PIOPS", "IOPS-month"),
    "rds-multi-az-gp3-throughput": _Sold("AmazonRDS", r"RDS:Multi-AZ-GP3-Throughput", "MBps-month"),
    "rds-multi-az-io1": _Sold("AmazonRDS", r"RDS:Multi-AZ-PIOPS-Storage", "GB-month"),
    "rds-multi-az-io1-iops": _Sold("AmazonRDS", r"RDS:Multi-AZ-PIOPS", "IOPS-month"),
    "rds-multi-az-io2": _Sold("AmazonRDS", r"RDS:Multi-AZ-PIOPS-Storage-IO2", "GB-month"),
    "rds-multi-az-io2-iops": _Sold("AmazonRDS", r"RDS:Multi-AZ-PIOPS-IO2", "IOPS-month"),
    "rds-proxy": _Sold("AmazonRDS", r"RDS:ProxyUsage", "hour"),
    "rds-proxy-acu": _Sold("AmazonRDS", r"RDS:Proxy-ASv2-Usage", "hour"),
    "ec2": _Sold(
        "AmazonEC2",
        r"BoxUsage:.*",
        "hour",
        {
            "instanceType": "{}",
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        },
    ),
    "ebs-gp3": _Sold("AmazonEC2", r"EBS:VolumeUsage\.gp3", "GB-month"),
    "public-ipv4": _Sold("AmazonVPC", r"PublicIPv4:InUseAddress", "hour"),
    "secret": _Sold("AWSSecretsManager", r"AWSSecretsManager-Secrets", "month"),
    "lambda-gb-second": _Sold("AWSLambda", r"Lambda-GB-Second-ARM", "one"),
    "lambda-requests": _Sold("AWSLambda", r"Request-ARM", "million"),
    "step-functions-transitions": _Sold("AmazonStates", r"StateTransition", "million"),
}


def usage_types(items: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches the usage types of these items, as bills name them in any Region."""
    kinds = {item.partition("/")[0] for item in items}
    known = sorted(_SOLD[kind].usage_type for kind in kinds if kind in _SOLD)
    return re.compile(rf"(?:[A-Z0-9]+-)?(?:{'|'.join(known) or '(?!)'})")


@final
class PriceList:
    """A lookup for `Prices`. Says None for everything once the API has refused to answer."""

    def __init__(self, clients: Caller) -> None:
        self._clients = clients
        self.refusal: str | None = None  #: why the API can't be asked, in one line

    def __call__(self, item: str, region: str) -> Price | None:
        """Give what an item costs in a Region; None when the list doesn't say, or can't be asked."""
        if self.refusal is not None:
            return None
        kind, _, which = item.partition("/")
        sold = _SOLD.get(kind)
        if sold is None:
            return None
        wanted = {"regionCode": region} | {name: value.replace("{}", which) for name, value in sold.attributes.items()}
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        usage_type = re.compile(rf"(?:[A-Z0-9]+-)?{sold.usage_type}")
        found: list[float] = []
        try:
            for text in self._clients.pages(
                "pricing", _REGION, "get_products", "PriceList", ServiceCode=sold.service, Filters=filters
            ):
                product = json.loads(text) if isinstance(text, str) else text
                attributes = product["product"]["attributes"]
                if usage_type.fullmatch(str(attributes.get("usagetype", ""))):
                    found += _on_demand(product)
        except (AwsError, CredentialsError) as error:
            self.refusal = str(error)
            _LOG.info("prices are taken from the table: %s", error)
            return None
        if not found:
            return None
        # In tiers by amount the first is the dearest, and a free tier has a usage type of its own.
        per_piece = max(found)
        pieces = UNITS[sold.unit] if sold.unit.startswith("million") else 1.0
        today = datetime.now(UTC).date()
        return Price(item, region, per_piece * pieces, sold.unit, today, "AWS Price List API", listed=True)


def _on_demand(product: Mapping[str, Any]) -> list[float]:
    """The prices of a product in USD for one unit, without those that are nothing."""
    terms = product.get("terms", {}).get("OnDemand", {})
    dimensions = (one for term in terms.values() for one in term.get("priceDimensions", {}).values())
    prices = (float(one.get("pricePerUnit", {}).get("USD", 0)) for one in dimensions)
    return [price for price in prices if price > 0]
