"""The suite itself: its data is whole, and its comparison tells what differs from what doesn't."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.local.conformance.answers import Answer, Observation
from tests.local.conformance.case import BadCase, Case, Step, read_cases
from tests.local.conformance.comparing import KEYS, differences, why_not
from tests.local.conformance.known import known_failures
from tests.local.conformance.score import score_lines
from tests.local.conformance.texts import expanded

CASES = read_cases()


def _expectations(case: Case) -> list[Any]:
    wanted = [step.expect for step in case.steps] + [one for alternative in case.one_of for one in alternative.values()]
    return [one for want in wanted if want is not None for one in (want, *want.get("results", ()))]


def test_expectations_have_known_keys_only() -> None:
    unknown = {(case.id, key) for case in CASES for want in _expectations(case) for key in set(want) - KEYS}
    assert not unknown


def test_ids_begin_alike_in_a_group() -> None:
    prefixes = {(case.group, case.id.rpartition("-")[0]) for case in CASES}
    assert len(prefixes) == len({group for group, _ in prefixes})


def test_known_failures_are_cases() -> None:
    assert set(known_failures()) <= {case.id for case in CASES}


@pytest.mark.parametrize("failure", known_failures().values(), ids=lambda failure: failure.id)
def test_known_failures_are_signed(failure: Any) -> None:
    assert failure.reason
    assert failure.by
    assert isinstance(failure.since, date)


def test_a_key_that_means_nothing_is_refused(tmp_path: Path) -> None:
    case = {"id": "x-1", "title": "", "evidence": "inferred", "steps": [{"sql": "SELECT 1", "expects": {}}]}
    (tmp_path / "x.json").write_text(json.dumps([case]))
    with pytest.raises(BadCase, match="expects"):
        read_cases([tmp_path])


def test_one_id_twice_is_refused(tmp_path: Path) -> None:
    case = {"id": "x-1", "title": "", "evidence": "inferred", "steps": []}
    (tmp_path / "x.json").write_text(json.dumps([case, case]))
    with pytest.raises(BadCase, match="two cases"):
        read_cases([tmp_path])


ROW = Answer(tag="SELECT 1", columns=["k"], rows=[["1"]])
ERROR = Answer(sqlstate="0A000", message="not supported", detail="because", hint=None)

FITTING: list[tuple[dict[str, Any], Answer]] = [
    ({}, ROW),
    ({"tag": ["SELECT 0", "SELECT 1"], "columns": ["k"], "rows": [["1"]], "row_count": 1}, ROW),
    ({"tag_like": r"SELECT \d", "rows_like": [[r"\d"]]}, ROW),
    ({"rows_like": [[None]]}, Answer(rows=[[None]])),
    ({"sqlstate": "*"}, ERROR),
    ({"sqlstate": ["0A000", "42601"], "message": "not supported", "detail_like": "be"}, ERROR),
    ({"aborted": True}, Answer(aborted=True)),
    ({"empty": True}, Answer(empty=True)),
]


@pytest.mark.parametrize(("want", "answer"), FITTING)
def test_fits(want: dict[str, Any], answer: Answer) -> None:
    assert why_not(want, answer) is None


DIFFERING: list[tuple[dict[str, Any], Answer]] = [
    ({}, ERROR),
    ({}, Answer(aborted=True)),
    ({"tag": "SELECT 2"}, ROW),
    ({"tag_like": "SELECT"}, ROW),
    ({"columns": ["K"]}, ROW),
    ({"rows": [["2"]]}, ROW),
    ({"row_count": 0}, ROW),
    ({"rows_like": [["1"], ["1"]]}, ROW),
    ({"rows_like": [["x"]]}, Answer(rows=[[None]])),
    ({"empty": True}, ROW),
    ({"sqlstate": "*"}, ROW),
    ({"sqlstate": "0A001"}, ERROR),
    ({"sqlstate": "0A000", "message": "not"}, ERROR),
    ({"sqlstate": "0A000", "hint_like": "."}, ERROR),
    ({"aborted": True}, ROW),
]


@pytest.mark.parametrize(("want", "answer"), DIFFERING)
def test_differs(want: dict[str, Any], answer: Answer) -> None:
    assert why_not(want, answer) is not None


def _case(*steps: Step, one_of: Any = ()) -> Case:
    return Case("x-1", "x", "", "inferred", steps, one_of=one_of)


SEEN = Observation(answers=[ROW], transaction="idle", ms=20.0)

WHOLE_STEPS: list[tuple[dict[str, Any], Observation, bool]] = [
    ({"tx": "idle"}, SEEN, True),
    ({"tx": "failed"}, SEEN, False),
    ({"max_ms": 10}, SEEN, False),
    ({"results": [{}, {}]}, SEEN, False),
    ({"results": [{"rows": [["1"]]}]}, SEEN, True),
    ({"closed": True}, SEEN, False),
    ({"closed": True, "message_like": "sni"}, Observation(closed="no sni"), True),
    ({"closed": True, "message_like": "sni"}, Observation(closed="no"), False),
    ({}, Observation(closed="no"), False),
    ({}, Observation(blocked=True), False),
]


@pytest.mark.parametrize(("want", "seen", "fits"), WHOLE_STEPS)
def test_steps(want: dict[str, Any], seen: Observation, fits: bool) -> None:
    assert (not differences(_case(Step(expect=want)), [seen])) is fits


def test_steps_that_were_not_reached_differ() -> None:
    assert differences(_case(Step(), Step(expect={})), [SEEN])


def test_one_alternative_has_to_fit() -> None:
    step = Step(expect={"rows": [["2"]]})
    assert not differences(_case(step, one_of=({0: {"rows": [["3"]]}}, {0: {"rows": [["1"]]}})), [SEEN])


def test_texts_are_expanded() -> None:
    text = "{{pad:3}} {{values:1..3}} {{columns:2}} {{columns:1:text}} {{cell:0}}"
    assert expanded(text, [SEEN]) == "xxx (1),(2),(3) c1 int, c2 int c1 text 1"


def test_a_case_of_both_protocols_passes_with_both() -> None:
    results = [("b", "b-1", True), ("b", "b-1", False), ("a", "a-1", True), ("a", "a-1", True)]
    assert [" ".join(line.split()) for line in score_lines(results)] == ["a 1/1", "b 0/1", "conformance 1/2 (50.0 %)"]
