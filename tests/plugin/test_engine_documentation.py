"""What docs/engine.md shows works when it is pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_dsql.local.documents import Document
from pytest_dsql.local.faults import file as fault_files
from pytest_dsql.local.faults.fault import WHATS
from pytest_dsql.local.latency import profile as profiles

ENGINE = (Path(__file__).parents[2] / "docs/engine.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", ENGINE, re.DOTALL | re.MULTILINE)


def test_its_test_of_two_regions_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(*[block for block in blocks("python") if "region=" in block])
    result = pytester.runpytest_subprocess("--dsql-set", "regions=us-east-1+us-east-2")
    result.assert_outcomes(passed=1)


def test_its_tests_pass(attached: pytest.Pytester) -> None:
    tests = [block for block in blocks("python") if "def test_" in block and "region=" not in block]
    assert len(tests) == 3
    attached.makepyfile(**{f"test_{number}": block for number, block in enumerate(tests)})
    attached.runpytest_subprocess().assert_outcomes(passed=3)


def test_its_profile_is_one() -> None:
    [profile] = [block for block in blocks("toml") if "rtt" in block]
    parsed = profiles.parse(Document(profile, "docs"), "docs")
    assert parsed.region(0) != parsed.region(1)


def test_its_faults_are_some() -> None:
    [faults] = [block for block in blocks("toml") if "[[fault]]" in block]
    assert [fault.what for fault in fault_files.parse(Document(faults, "docs"))] == [
        "conflict",
        "unavailable",
        "refuse",
    ]


def test_it_names_every_profile_and_every_fault() -> None:
    assert [name for name in profiles.names() if f"| `{name}` |" not in ENGINE] == []
    assert [what for what in WHATS if f"| `{what}` |" not in ENGINE] == []
