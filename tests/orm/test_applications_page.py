"""What docs/applications.md shows works when it is pasted: its files make a project, and its tests pass."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_dsql.settings import ENGINE_VARIABLE
from pytest_dsql.targets.target import Target

PAGE = Path(__file__).parents[2] / "docs/applications.md"


def test_the_project_of_the_page(
    dsql_target: Target, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dsql_target.engine is None:
        pytest.skip("the page is about the embedded engine")
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        file = pytester.path / block.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")
    lacking = {"test_psql": shutil.which("psql") is None, "test_the_newest_schema": find_spec("alembic") is None}
    chosen = " and ".join(["test", *(f"not {name}" for name, absent in lacking.items() if absent)])
    monkeypatch.setenv(ENGINE_VARIABLE, str(dsql_target.engine.control))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    result = pytester.runpytest_subprocess("-k", chosen)
    result.assert_outcomes(passed=7 - sum(lacking.values()), deselected=sum(lacking.values()))
