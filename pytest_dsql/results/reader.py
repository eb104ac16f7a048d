"""Reads a results file, or says in one line why it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pytest_dsql.errors import UsageError
from pytest_dsql.results.schema import SCHEMA_VERSION, inconsistencies, problems

FILE_NAME: Final = "results.json"
LATEST: Final = "latest"


def read_results(path: Path | str) -> dict[str, Any]:
    """Return the content of a results file, checked against its schema and for contradictions.

    `path` is the file, a run's directory, or a directory of runs (then `latest`, or where no link can be, the newest).
    Raises UsageError naming the file and what is wrong with it.
    """
    file = _locate(Path(path))
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no results file {file}: run the benchmarks first, or name another path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the results file {file}: {_why(error)}") from None
    return parse_results(text, str(file))


def parse_results(text: str, name: str) -> dict[str, Any]:
    """Return the content of a results file given as text; `name` is what error messages call it."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{name} is no results file: not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        ) from None
    except _NotJson as error:
        raise UsageError(f"{name} is no results file: {error} is no number in JSON") from None
    except RecursionError:
        raise UsageError(f"{name} is no results file: nested too deep") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(schema, int) and not isinstance(schema, bool) and schema != SCHEMA_VERSION:
        raise UsageError(
            f"{name} has schema version {schema}, and this pytest-dsql reads version {SCHEMA_VERSION}: "
            "read it with the release that wrote it"
        )
    wrong = list(problems(value))
    if wrong:
        raise UsageError(f"{name} is no results file: {_first(wrong)}")
    contradictions = list(inconsistencies(value))
    if contradictions:
        raise UsageError(f"{name} contradicts itself: {_first(contradictions)}")
    assert isinstance(value, dict)
    return value


class _NotJson(Exception):
    """NaN or Infinity, which Python's reader would accept."""


def _no_constant(constant: str) -> float:
    raise _NotJson(constant)


def _first(sentences: list[str]) -> str:
    rest = len(sentences) - 1
    return sentences[0] + (f" (and {rest} more)" if rest else "")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _locate(path: Path) -> Path:
    if not path.is_dir():
        return path
    for candidate in (path / FILE_NAME, path / LATEST / FILE_NAME):
        if candidate.is_file():
            return candidate
    # Run ids begin with the time, so the last name is the newest run.
    runs = sorted(path.glob(f"*/{FILE_NAME}"))
    return runs[-1] if runs else path / FILE_NAME
