"""Cells through the endpoint of each Region of a target."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import CELL


def test_a_cell_goes_through_the_region_that_was_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        CELL
        + """
from pytest_dsql.errors import UsageError

def test_cells(dsql_load, dsql_target):
    assert list(dsql_target.regions) == ["us-east-1", "us-east-2"]
    for region, endpoint in dsql_target.regions.items():
        load = dsql_load.through(region)
        assert load.endpoint is endpoint
        cell = load.closed(MIX, connections=1, warmup=0, duration=0.5)
        cell.assert_meets(Slo(reads=Latency(p50=ms(5000))))
    with pytest.raises(UsageError, match="not in eu-west-1; its Regions: us-east-1, us-east-2"):
        dsql_load.through("eu-west-1")
"""
    )
    result = pytester.runpytest_subprocess("--dsql-set", "regions=us-east-1+us-east-2")
    result.assert_outcomes(passed=1)
    cells = json.loads((pytester.path / ".dsql/latest/results.json").read_text())["cells"]
    assert [cell["id"].rpartition("::")[2] for cell in cells] == ["test_cells[us-east-1]", "test_cells[us-east-2]"]
    assert {cell["verdict"]["outcome"] for cell in cells} == {"pass"}
