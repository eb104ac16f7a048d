"""What was measured while the engine injected latency or faults is marked, in the file and in the summary."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import CELL

MARKED = (
    CELL
    + """
from pytest_dsql import Fault

@pytest.mark.dsql
def test_troubled(dsql_load, dsql_local):
    with dsql_local.faults(Fault.slow_connect(ms=1)):
        dsql_load.sequential_connects(2)
        dsql_load.churn(MIX, connections=1, warmup=0.0, duration=0.3)

@pytest.mark.dsql
def test_untroubled(dsql_load, dsql_local):
    with dsql_local.faults(Fault.slow_connect(ms=1, first=1, between=(1000, 2000))):
        dsql_load.sequential_connects(2)
        dsql_load.closed(MIX, connections=1, warmup=0.0, duration=0.3)
"""
)


def test_what_was_measured_under_trouble_is_marked(attached: pytest.Pytester) -> None:
    attached.makepyfile(MARKED)
    result = attached.runpytest_subprocess("-m", "dsql")
    cells = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert [(cell["test"].partition("::")[2], cell["simulated"]) for cell in cells] == [
        ("test_troubled", True),
        ("test_troubled", True),
        ("test_untroubled", False),
        ("test_untroubled", False),
    ]
    result.stdout.fnmatch_lines(["*churn *(simulated)*", "simulated: the engine injected latency or faults*"])
