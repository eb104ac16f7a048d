import json
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local.documents import Document
from pytest_dsql.local.faults.fault import Fault
from pytest_dsql.local.faults.file import parse, read

EXAMPLES = [
    Fault.conflict(table="accounts", every=3),
    Fault.schema_change(on="select", first=1),
    Fault.unavailable(on="dml", probability=0.25),
    Fault.unavailable(on="commit", after=True),
    Fault.error("54000", "transaction row limit exceeded", on=("insert", "update")),
    Fault.disconnect(after=True, between=(1, 2.5), name="lost"),
    Fault.silence(sql=r"FROM\s+slow"),
    Fault.stall(ms=250, cluster=True),
    Fault.refuse("53300", first=10),
    Fault.refuse(message="no", sqlstate="57P03"),
    Fault.slow_connect(ms=200),
]


@pytest.mark.parametrize("fault", EXAMPLES, ids=lambda fault: fault.label)
def test_a_fault_travels_as_json(fault: Fault) -> None:
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        (Fault.conflict(), ("commit",)),
        (Fault.schema_change(), ("statement",)),
        (Fault.stall(ms=1), ("statement", "commit")),
        (Fault.refuse(), ("connect",)),
        (Fault.disconnect(on="begin"), ("begin",)),
    ],
)
def test_a_fault_has_a_usual_place(fault: Fault, place: tuple[str, ...]) -> None:
    assert fault.on == place


def test_a_fault_is_counted_as_what_and_where_unless_it_has_a_name() -> None:
    assert Fault.unavailable(on=("insert", "update")).label == "unavailable on insert or update"
    assert Fault.unavailable(name="mine").label == "mine"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "what: say what goes wrong: conflict, schema-change"),
    ({"what": "explode"}, "what: 'explode' is not one of conflict"),
    ({"what": "conflict", "on": "lunch"}, "on: 'lunch' is not one of select"),
    ({"what": "conflict", "on": 3}, "on: expected a text or a list of texts, not 3"),
    ({"what": "conflict", "on": "connect"}, "on: a connection can't meet 'conflict', only disconnect"),
    ({"what": "refuse", "on": "select", "sqlstate": "53300"}, "on: 'refuse' happens to connections only"),
    ({"what": "disconnect", "on": ["connect", "select"]}, "on: connect stands alone"),
    ({"what": "disconnect", "on": "connect", "table": "t"}, "table: a connection has none"),
    ({"what": "conflict", "sql": "("}, "sql: not a regular expression"),
    ({"what": "conflict", "every": 0}, "every: expected a whole number, 1 or more, not 0"),
    ({"what": "conflict", "every": 1.5}, "every: expected a whole number, 1 or more, not 1.5"),
    ({"what": "conflict", "first": True}, "first: expected a whole number, 1 or more, not True"),
    ({"what": "conflict", "probability": 2}, "probability: expected a number from 0 to 1, not 2"),
    ({"what": "conflict", "every": 2, "probability": 0.5}, "probability: say either every or probability"),
    ({"what": "conflict", "between": [3, 1]}, "between: expected 0 <= begin < end"),
    ({"what": "conflict", "between": 3}, "between: expected two numbers of seconds"),
    ({"what": "conflict", "after": True}, "after: 'conflict' can't come after the effect"),
    ({"what": "conflict", "after": "yes"}, "after: expected true or false, not 'yes'"),
    ({"what": "conflict", "ms": 5}, "ms: 'conflict' takes no time; a stall does"),
    ({"what": "stall"}, "ms: expected milliseconds, 0 to 3,600,000, not None"),
    ({"what": "slow", "ms": 1, "cluster": True}, "cluster: only a stall can be everybody's"),
    ({"what": "refuse", "sqlstate": "12345"}, "sqlstate: '12345' is not one of 53300, 53400, 08006; or give a message"),
    ({"what": "error", "sqlstate": "12345"}, "message: an error needs one"),
    ({"what": "error", "sqlstate": "oops", "message": "x"}, "sqlstate: expected five digits or capital letters"),
    ({"what": "conflict", "sqlstate": "40001"}, "sqlstate: 'conflict' has DSQL's own"),
    ({"what": "conflict", "tabel": "t"}, "tabel: unknown key; known: after"),
    ({"what": "conflict", "table": ""}, "table: expected a text, not ''"),
]


@pytest.mark.parametrize(("values", "error"), WRONG)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error.replace("(", r"\(")):
        Fault.from_json(values)


def test_a_file_holds_rules_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(
        """
        [[fault]]
        what = "conflict"
        table = "accounts"
        every = 3

        [[fault]]
        what = "refuse"
        sqlstate = "53300"
        first = 10
        """
    )
    assert read(file) == [Fault.conflict(table="accounts", every=3), Fault.refuse("53300", first=10)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[[fault]]\nwhat = "conflict"\n\n[[fault]]\nwhat = "stall"\nms = -3', "f:6: fault.#2.ms: expected millisec"),
        ('[[fault]]\nwhat = "conflict"\n"every" = 0', "f:3: fault.#1.every: expected a whole number"),
        ('[[fault]]\ntable = "t"', "f:1: fault.#1.what: say what goes wrong"),
        ('[[faults]]\nwhat = "conflict"', "f:1: faults: unknown key; known: fault"),
        ("", r"f: fault: write \[\[fault\]\] for each rule"),
        ("[[fault]\n", r"f: not TOML: .*line 1"),
    ],
)
def test_a_mistake_in_a_file_is_shown_with_its_line(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        parse(Document(text, "f"))
