"""What DSQL answers, case by case: on the embedded engine, or on the cluster that `--dsql-endpoint` names."""

from __future__ import annotations

from datetime import date

import pytest

from tests.local.conformance.case import Case, Protocol
from tests.local.conformance.conftest import is_later
from tests.local.conformance.lanes import Lanes


@pytest.mark.usefixtures("noted_group")
def test_case(case: Case, protocol: Protocol, conformance_lanes: Lanes, rules_day: date | None) -> None:
    if is_later(case, rules_day):
        pytest.skip(f"came to DSQL on {case.since}")
    outcome = conformance_lanes.ask(case, protocol)
    if not outcome.passed:
        pytest.fail("\n".join(outcome.wrong), pytrace=False)
