"""Options and commands that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_dsql.cli import _parsers
from pytest_dsql.settings import OPTIONS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"--dsql-[a-z]+(?:-[a-z]+)*", text)) <= {option.flag for option in OPTIONS}
    _parser, _local, others = _parsers()
    commands = set(re.findall(r"(?:`|^    |: )pytest-dsql ([a-z]+)\b", text, re.MULTILINE))
    assert commands <= {"local", *others}


def test_the_workflows_are_yaml_with_settings_that_exist() -> None:
    yaml = pytest.importorskip("yaml")  # comes with moto
    text = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    workflows = [yaml.safe_load(one) for one in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]
    assert [one["name"] for one in workflows] == ["dsql", "nightly"]
    steps = [step for one in workflows for job in one["jobs"].values() for step in job["steps"]]
    set_there = {name for step in steps for name in step.get("env", {})}
    assert set_there
    assert set_there <= {option.variable for option in OPTIONS}
    run = " ".join(step.get("run", "") for step in steps)
    assert {"pytest-dsql doctor", "pytest-dsql reap"} <= set(re.findall(r"pytest-dsql [a-z]+", run))
