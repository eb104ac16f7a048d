"""`pytest-dsql cost RUN`: estimate, CloudWatch and bill side by side; what is known better goes into the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.reconcile import reconcile, results_of
from pytest_dsql.cost.shape import CostShape, DsqlUse
from pytest_dsql.errors import CredentialsError, UsageError
from pytest_dsql.load.cost import Cost
from pytest_dsql.results.reader import read_results
from pytest_dsql.results.run import RunInfo
from pytest_dsql.results.writer import ResultsFile
from tests.cost.conftest import Answers, refusal
from tests.cost.metrics import CLUSTER, REGION, START, put_dpu
from tests.cost.test_bill import DSQL, active, group
from tests.load.made_cells import cell, measurement, samples

Answering = Callable[[Answers], list[tuple[str, Mapping[str, Any]]]]
RUN = "20260921T141500Z-abcdef"
DAY_S = 86_400.0


def utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Results of a run of an hour with two cells on a cluster that is gone."""
    info = RunInfo.collect(id=RUN, plan="quick", seed=1)
    file = ResultsFile(tmp_path, RunInfo(RUN, utc(START), "quick", 1, info.versions, info.host))
    shape = CostShape("dsql", dsql=DsqlUse(REGION, CLUSTER))
    file.put_target(
        "dsql",
        cost_usd=0.05,
        cost_dpu=5000.0,
        cost_estimated=True,
        cost_prices="table of 2026-09-11",
        cost_note=None,
        budget_usd=1.0,
        estimate_usd=0.25,
        cost_shape=shape.to_json(),
    )
    for name, began, dpu in (("long", START + 300, 900.0), ("short", START + 1215, 3.0)):
        ended = began + (600 if name == "long" else 10)
        cost = Cost(began, ended, dpu, None, dpu / 1e5, True, "unit costs")
        file.put(cell(measurement(samples("order_create", 10), cost=cost), id=name, target="dsql"))
    file.finish()
    return file.path


def finished_at(path: Path) -> None:
    """Have the run end an hour after it began: `finish` notes the time of the test."""
    text = path.read_text()
    known = read_results(path)["run"]["finished_at"]
    path.write_text(text.replace(known, utc(START + 3600)))


def test_side_by_side_a_day_later(clients: Clients, answering: Answering, path: Path) -> None:
    finished_at(path)
    put_dpu(clients, dict.fromkeys(range(5, 21), 100.0))
    answering(
        {
            **active("pytest-dsql:run"),
            "GetCostAndUsage": lambda _parameters: {
                "ResultsByTime": [{"Estimated": False, "Groups": [group("Aurora DSQL", DSQL, "0.0161", "1610")]}]
            },
        }
    )
    lines = reconcile(path, lambda: clients, now=lambda: START + 2 * DAY_S)
    text = "\n".join(lines)
    assert "estimate before  $0.2500 of a budget of $1.00" in text
    assert "during the run   5,000.0 DPU, $0.0500 (estimated; prices: table of 2026-09-11)" in text
    assert "CloudWatch       1,600.0 DPU, $0.0160 (2 of 2 cells, now in the results; prices: table of" in text
    assert "bill: $0.0161 on 2026-09-21 (UTC)\n  of this run alone, by the tag pytest-dsql:run" in text
    assert f"Aurora DSQL  {DSQL}  1,610.000 DPU  $0.0161" in text
    results = read_results(path)
    long, short = (one["cost"] for one in results["cells"])
    assert (long["dpu"], long["estimated"], long["source"]) == (1000.0, False, "cloudwatch")
    assert (short["dpu"], short["estimated"], short["source"]) == (pytest.approx(100 / 6), True, "cloudwatch")
    [target] = results["targets"]
    assert (target["cost_dpu"], target["cost_usd"], target["cost_estimated"]) == (1600.0, 0.016, False)
    # A second time it says the same.
    assert reconcile(path, lambda: clients, now=lambda: START + 2 * DAY_S)[-4:] == lines[-4:]


def test_without_the_tag_it_says_whose_bill_it_is(clients: Clients, answering: Answering, path: Path) -> None:
    finished_at(path)
    answering(
        {
            **active(),
            "GetCostAndUsage": lambda _parameters: {
                "ResultsByTime": [{"Estimated": True, "Groups": [group("Aurora DSQL", DSQL, "3.2", "320000")]}]
            },
        }
    )
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 2 * DAY_S))
    assert "bill: $3.20 on 2026-09-21 (UTC), still an estimate of AWS" in text
    assert "of the whole account: the tag pytest-dsql:run is not active as a cost allocation tag" in text


def test_an_account_that_tells_nothing_changes_nothing(clients: Clients, path: Path) -> None:
    """As with another account's profile: that gives no error, only no data."""
    finished_at(path)
    before = path.read_bytes()
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 3700))
    assert f"it tells nothing of DPU in {REGION}, and the results stay as they are: is this the account" in text
    assert path.read_bytes() == before


def test_a_cell_that_is_not_told_of_keeps_its_estimate(clients: Clients, path: Path) -> None:
    finished_at(path)
    put_dpu(clients, dict.fromkeys(range(5, 16), 100.0))
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 3700))
    assert "(1 of 2 cells, now in the results" in text
    results = read_results(path)
    assert [one["cost"]["source"] for one in results["cells"]] == ["cloudwatch", "unit costs"]
    assert results["cells"][1]["cost"]["dpu"] == 3.0
    [target] = results["targets"]
    assert (target["cost_dpu"], target["cost_estimated"]) == (1103.0, True)


def test_too_early_for_the_bill(clients: Clients, path: Path) -> None:
    finished_at(path)
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 3700))
    assert "bill: Cost Explorer is complete about a day after the run; ask again after 2026-09-22 15:15 UTC" in text


def test_too_late_for_the_minutes(clients: Clients, answering: Answering, path: Path) -> None:
    finished_at(path)
    answering({**active(), "GetCostAndUsage": lambda _parameters: {"ResultsByTime": []}})
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 16 * DAY_S))
    assert "it no longer has the run's minutes" in text
    assert "nothing: it was less than a cent" in text


def test_who_may_not_ask_is_told_what_is_missing(clients: Clients, answering: Answering, path: Path) -> None:
    finished_at(path)
    answering(
        {
            "GetMetricData": refusal("AccessDenied", 403),
            "ListCostAllocationTags": refusal("AccessDeniedException", 400),
        }
    )
    text = "\n".join(reconcile(path, lambda: clients, now=lambda: START + 2 * DAY_S))
    assert "CloudWatch       can't be asked: some:Thing is not allowed in ap-northeast-2" in text
    assert "bill: Cost Explorer can't be asked: some:Thing is not allowed in us-east-1" in text
    assert "123456789012" not in text


def test_without_credentials_the_estimates_are_shown(path: Path) -> None:
    def nobody() -> Clients:
        raise CredentialsError("no AWS credentials")

    text = "\n".join(reconcile(path, nobody, now=lambda: START + 2 * DAY_S))
    assert "5,000.0 DPU" in text
    assert "can't be asked: no AWS credentials" in text


def test_a_run_on_the_engine_asks_nobody(tmp_path: Path) -> None:
    info = RunInfo.collect(id=RUN, plan="quick", seed=1)
    file = ResultsFile(tmp_path, info)
    file.put_target("local", cost_dpu=12.0, cost_usd=0.000096, cost_estimated=True)
    file.finish()

    def nobody() -> Clients:
        raise AssertionError("nobody is to be asked")

    assert "the embedded engine costs nothing billed by AWS" in "\n".join(reconcile(file.path, nobody))


def test_a_run_is_found_by_id_directory_and_file(path: Path, tmp_path: Path) -> None:
    for name in (RUN, str(path.parent), str(path)):
        assert results_of(name, tmp_path) == path
    with pytest.raises(UsageError, match="there are no results of a run 'other'"):
        results_of("other", tmp_path)
