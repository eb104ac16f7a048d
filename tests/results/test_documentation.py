"""docs/results.md lists the keys of a real file: all of them, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.results.schema import KEYS
from tests.results.made_files import content, full_file

DOCUMENT = Path(__file__).parents[2] / "docs" / "results.md"


def documented() -> set[str]:
    """Return the keys of the document's tables; `{a,b}` stands for several."""
    keys: set[str] = set()
    for written in re.findall(r"^\| `([^`]+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE):
        head, braces, names = written.rpartition("{")
        several = names.rstrip("}").split(",") if braces and "," in names else None
        keys.update(f"{head}{name}" for name in several) if several else keys.add(written)
    return keys


def found(value: Any, path: str = "") -> set[str]:
    """Return the path of everything in a file, as the document writes it."""
    keys = {path} if path else set()
    if isinstance(value, dict) and path != "experiments{}":
        for name, member in value.items():
            fixed = f"{path}.{name}" if path else name
            keys |= found(member, fixed if fixed in KEYS else f"{path}{{}}")
    elif isinstance(value, list):
        for member in value:
            keys |= found(member, f"{path}[]")
    return keys


def test_every_key_of_the_schema_is_documented() -> None:
    assert documented() == set(KEYS)


def test_a_real_file_has_every_documented_key(tmp_path: Path) -> None:
    assert found(content(full_file(tmp_path))) == documented()


@pytest.mark.parametrize("outcome", ["pass", "fail", "inconclusive", "invalid", "unjudged"])
def test_every_outcome_is_documented(outcome: str) -> None:
    assert f"`{outcome}`" in DOCUMENT.read_text(encoding="utf-8")
