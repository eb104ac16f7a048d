"""What the README and the page about load show works when it is pasted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def python_block(containing: str, page: Path = README) -> str:
    """Return the one block of Python in a page, by default the README, that contains a text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def test_the_application_test(attached: pytest.Pytester) -> None:
    attached.makepyfile(python_block("def test_reserving_stock"))
    attached.runpytest_subprocess().assert_outcomes(passed=1)


def test_its_conflict_hour_and_lost_answer(attached: pytest.Pytester) -> None:
    attached.makepyfile(python_block("def test_the_second_committer_loses"))
    attached.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_benchmark_reaches_its_tables(attached: pytest.Pytester) -> None:
    written = python_block("def test_reservations_meet_the_slo")
    shorter = written.replace("connections=connections)", "connections=connections, warmup=0.2, duration=0.5)")
    assert shorter != written
    attached.makepyfile(shorter)
    attached.runpytest_subprocess("-m", "dsql")  # how fast this machine is now is not the question
    cells = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert [cell["connections"] for cell in cells] == [4, 16]
    for cell in cells:
        assert set(cell["transactions"]) == {"product_read", "reserve"}
        assert sum(one["outcomes"]["ok"] for one in cell["transactions"].values()) > 0
        assert {state for one in cell["transactions"].values() for state in one["errors"]} <= {"40001"}


def test_a_workload_of_the_users_own_is_checked_after_its_cell(attached: pytest.Pytester) -> None:
    written = python_block("class Bank", ROOT / "docs/load.md")
    shorter = written.replace("connections=8)", "connections=8, warmup=0.2, duration=0.5)")
    # The same with a transaction that loses money.
    losing = re.sub(r'    yield "UPDATE bank SET balance = balance \+ 1.*\n', "", shorter)
    assert len({written, shorter, losing}) == 3
    attached.makepyfile(test_bank=shorter, test_thief=losing)
    attached.runpytest_subprocess("-m", "dsql")  # whether it is fast enough is not the question
    kept, lost = json.loads((attached.path / ".dsql/latest/results.json").read_text())["cells"]
    assert kept["invariants"] == {"money is neither made nor lost": 0}
    committed = sum(one["outcomes"]["ok"] + one["outcomes"]["ok_retried"] for one in lost["transactions"].values())
    assert lost["invariants"]["money is neither made nor lost"] >= committed > 0
    assert lost["verdict"]["outcome"] == "fail"
