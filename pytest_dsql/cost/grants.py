"""What is asked of AWS to know what a run costs: for the policies that `pytest-dsql policy TARGET` prints.

Sources: Service Authorization Reference, "Actions, resources, and condition keys" for Amazon CloudWatch, AWS Price List
and AWS Cost Explorer: none of these actions can be narrowed to resources.
"""

from __future__ import annotations

from typing import Final

from pytest_dsql.aws.policies import Grant

#: Without them a run is reckoned by unit costs and priced from the table.
ACTIONS: Final = (
    Grant(("cloudwatch:GetMetricData", "pricing:GetProducts", "ce:GetCostAndUsage", "ce:ListCostAllocationTags")),
)
