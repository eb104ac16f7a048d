"""What PostgreSQL says of a plan, without the engine's own triggers."""

from __future__ import annotations

import json

import pytest

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.explained import without_triggers

DONE = frames.message(frames.COMMAND_COMPLETE, b"EXPLAIN\0")


def row(text: str) -> bytes:
    value = text.encode()
    return frames.message(frames.DATA_ROW, b"\0\1" + len(value).to_bytes(4, "big") + value)


def test_lines_of_our_triggers_are_left_out() -> None:
    others = [
        row("Insert on t"),
        row("Trigger for constraint c: time=0.1 calls=1"),
        row("Execution Time: 0.1 ms"),
        DONE,
    ]
    ours = [row("Trigger dsql_limits_insert: time=0.1 calls=1"), row("Trigger pytest_dsql_engine_x on t: calls=1")]
    assert without_triggers([*others[:1], *ours, *others[1:]]) == others


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            (
                '- Plan: \n    Node: "a"\n  Triggers: \n    - Trigger Name: "dsql_limits_insert"\n      Relation: "t"\n'
                '      Time: 0.1\n      Calls: 1\n    - Trigger Name: "c"\n      Time: 0.2\n  Execution Time: 0.1'
            ),
            '- Plan: \n    Node: "a"\n  Triggers: \n    - Trigger Name: "c"\n      Time: 0.2\n  Execution Time: 0.1',
        ),
        (
            (
                "<explain>\n    <Triggers>\n      <Trigger>\n        <Trigger-Name>dsql_limits_insert</Trigger-Name>\n"
                "        <Calls>1</Calls>\n      </Trigger>\n      <Trigger>\n        <Trigger-Name>c</Trigger-Name>\n"
                "      </Trigger>\n    </Triggers>\n</explain>"
            ),
            (
                "<explain>\n    <Triggers>\n      <Trigger>\n        <Trigger-Name>c</Trigger-Name>\n"
                "      </Trigger>\n    </Triggers>\n</explain>"
            ),
        ),
    ],
)
def test_other_forms_too(given: str, expected: str) -> None:
    assert without_triggers([row(given), DONE]) == [row(expected), DONE]


def test_json_too() -> None:
    plan = [{"Plan": {"a": 1.5}, "Triggers": [{"Trigger Name": "dsql_limits_insert"}, {"Trigger Name": "c"}]}]
    shown = without_triggers([row(json.dumps(plan)), DONE])[0]
    assert json.loads(shown[11:]) == [{"Plan": {"a": 1.5}, "Triggers": [{"Trigger Name": "c"}]}]
