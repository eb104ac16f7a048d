"""When asking for connections passes: all made, or every refusal explained."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.slo.connecting import judge_connections
from pytest_dsql.slo.verdict import Verdict


def verdict(attempted: int, succeeded: int, refused: dict[str, int] | None = None, **changes: Any) -> Verdict:
    facts = {"refused": refused or {}, "messages": {}} | changes
    return judge_connections(attempted=attempted, succeeded=succeeded, **facts)


def test_all_made() -> None:
    assert verdict(500, 500).outcome == "pass"


def test_refused_at_the_targets_limits() -> None:
    judged = verdict(500, 490, {"53400": 8, "53300": 2})
    assert judged.outcome == "pass"
    assert judged.reasons == (
        "490 of 500 connections were made; limits of the target explain the others (8 with 53400, 2 with 53300).",
    )


def test_refused_for_another_reason() -> None:
    judged = verdict(500, 499, {"28000": 1}, messages={"28000": "access denied."})
    assert judged.outcome == "fail"
    assert judged.reasons == ("1 of 500 connections were refused with 28000: access denied.",)


def test_no_answer_is_no_explanation() -> None:
    assert verdict(500, 499, {"connection": 1}).outcome == "fail"


def test_the_caller_says_what_explains() -> None:
    assert verdict(10, 9, {"53400": 1}, allowed=()).outcome == "fail"
    assert verdict(10, 9, {"57P03": 1}, allowed=("57P03",)).outcome == "pass"


def test_a_refusal_counted_as_zero_is_none() -> None:
    assert verdict(10, 10, {"28000": 0}).outcome == "pass"


@pytest.mark.parametrize(("attempted", "refused"), [(0, {}), (100, {"53400": 100})])
def test_no_connection_never_passes(attempted: int, refused: dict[str, int] | None) -> None:
    assert verdict(attempted, 0, refused).outcome == "inconclusive"


def test_undecided_connections_are_inconclusive() -> None:
    judged = verdict(100, 90, {"53400": 5})
    assert judged.outcome == "inconclusive"
    assert "5 of 100 connections were neither made nor refused" in judged.reasons[0]


def test_no_answer_to_a_busy_generator_says_nothing_about_the_target() -> None:
    assert verdict(100, 90, {"connection": 10}, cpu=0.9).outcome == "invalid"


def test_a_refusal_by_the_server_stands_however_busy_the_generator() -> None:
    assert verdict(100, 90, {"connection": 5, "28000": 5}, cpu=0.9).outcome == "fail"


def test_a_pass_of_a_busy_generator_says_at_least() -> None:
    judged = verdict(100, 100, cpu=0.9)
    assert judged.outcome == "pass"
    assert judged.reasons[1].startswith("At least: ")
    assert not judged.healthy
