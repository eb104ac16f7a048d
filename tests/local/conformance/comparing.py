"""Whether what was seen is what a case expects, and if not, why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.local.conformance.answers import Answer, Observation
from tests.local.conformance.case import Case, Expectation

#: The keys of an expectation.
KEYS: Final = frozenset(
    {
        *("tag", "tag_like", "columns", "rows", "rows_like", "row_count", "empty"),
        *("sqlstate", "message", "message_like", "detail_like", "hint_like"),
        *("results", "aborted", "closed", "tx", "max_ms"),
    }
)

Difference: TypeAlias = "tuple[int, str, Expectation | None]"  #: the step, what is wrong, what was expected


def differences(case: Case, history: Sequence[Observation]) -> list[Difference]:
    """Return where a run differs from its case; with alternatives, from the one that it is closest to."""
    found = [_differences(case, history, alternative) for alternative in case.one_of or ({},)]
    return min(found, key=len)


def _differences(
    case: Case, history: Sequence[Observation], alternative: Mapping[int, Expectation]
) -> list[Difference]:
    found: list[Difference] = []
    for place, step in enumerate(case.steps):
        want = alternative.get(place, step.expect)
        if place >= len(history):
            if want is not None:
                found.append((place, "not reached", want))
            continue
        if want is not None and step.max_ms is not None:
            want = {"max_ms": step.max_ms, **want}
        why = _why_not(want, history[place])
        if why is not None:
            found.append((place, why, want))
    return found


def _why_not(want: Expectation | None, seen: Observation) -> str | None:
    if seen.blocked:
        return "no answer in time"
    if want is None:
        return None
    if want.get("closed"):
        return _why_not_closed(want, seen)
    if seen.closed is not None:
        if "sqlstate" in want and seen.answers:
            return why_not(want, seen.answers[-1])
        return "the connection was closed"
    if "results" in want:
        if len(seen.answers) != len(want["results"]):
            return f"{len(want['results'])} results expected, {len(seen.answers)} came"
        pairs = list(zip(want["results"], seen.answers, strict=True))
    else:
        pairs = [(want, seen.answers[-1] if seen.answers else Answer())]
    for place, (one, answer) in enumerate(pairs):
        why = why_not(one, answer)
        if why is not None:
            return why if len(pairs) == 1 else f"result {place}: {why}"
    if "tx" in want and seen.transaction != want["tx"]:
        return f"the transaction is {seen.transaction}, not {want['tx']}"
    if "max_ms" in want and seen.ms > want["max_ms"]:
        return f"took {seen.ms:.0f} ms, {want['max_ms']} are allowed"
    return None


def _why_not_closed(want: Expectation, seen: Observation) -> str | None:
    if seen.closed is None:
        return "the connection should have been refused or closed"
    if "message_like" in want and not re.search(want["message_like"], seen.closed, re.DOTALL):
        return "the connection was refused or closed with other words"
    return None


def why_not(want: Expectation, answer: Answer) -> str | None:
    """Say why one answer is not the expected one; None when it is."""
    if want.get("aborted") or answer.aborted:
        return None if want.get("aborted") and answer.aborted else "skipped by a failed pipeline, or should have been"
    if "sqlstate" in want:
        return _why_not_error(want, answer)
    if answer.failed:
        return "an error instead of success"
    if "tag" in want and not _one_of(want["tag"], answer.tag):
        return "another command tag"
    if "tag_like" in want and not re.fullmatch(want["tag_like"], answer.tag or ""):
        return "another command tag"
    if want.get("empty") and not answer.empty:
        return "an empty query's answer was expected"
    return _why_not_rows(want, answer)


def _why_not_error(want: Expectation, answer: Answer) -> str | None:
    if not answer.failed:
        return "success instead of an error"
    if want["sqlstate"] != "*" and not _one_of(want["sqlstate"], answer.sqlstate):
        return "another SQLSTATE"
    if "message" in want and not _one_of(want["message"], answer.message):
        return "another message"
    for name in ("message", "detail", "hint"):
        pattern = want.get(f"{name}_like")
        if pattern is not None and not re.search(pattern, getattr(answer, name) or "", re.DOTALL):
            return f"another {name}"
    return None


def _why_not_rows(want: Expectation, answer: Answer) -> str | None:
    rows = answer.rows or []
    if "columns" in want and answer.columns != want["columns"]:
        return "other columns"
    if "rows" in want and rows != want["rows"]:
        return "other rows"
    if "row_count" in want and len(rows) != want["row_count"]:
        return "another number of rows"
    if "rows_like" in want and not _rows_match(want["rows_like"], rows):
        return "other rows"
    return None


def _rows_match(patterns: Sequence[Sequence[str | None]], rows: Sequence[Sequence[str | None]]) -> bool:
    return len(patterns) == len(rows) and all(
        len(wanted) == len(row) and all(map(_cell_matches, wanted, row))
        for wanted, row in zip(patterns, rows, strict=True)
    )


def _cell_matches(pattern: str | None, cell: str | None) -> bool:
    if pattern is None or cell is None:
        return pattern is cell
    return re.fullmatch(pattern, cell, re.DOTALL) is not None


def _one_of(wanted: Any, got: str | None) -> bool:
    return got in wanted if isinstance(wanted, list) else got == wanted
