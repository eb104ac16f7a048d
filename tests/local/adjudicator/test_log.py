"""The log of a transaction: how what it has done is done again."""

from __future__ import annotations

from pytest_dsql.local.adjudicator.sandbox.captures import Capture
from pytest_dsql.local.adjudicator.sandbox.forms import form
from pytest_dsql.local.adjudicator.sandbox.plans import Plan, Text
from pytest_dsql.local.adjudicator.work import Entry
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.run import NO_PARAMETERS, NOTHING_BOUND, Executions


def captured(sql: str) -> Plan:
    again = Capture("physical", "sandbox")
    return Plan(form(sql), (), (), (), frozenset(), True, Text(last="captured"), Text(last="captured"), again)


def entry(texts: Plan, *rows: bytes) -> Entry:
    sql = texts.form.sql.encode()
    return Entry(sql, texts, NO_PARAMETERS, NOTHING_BOUND, captured=rows, rows=len(rows))


def test_captured_inserts_are_done_again_at_once() -> None:
    texts = captured("INSERT INTO t DEFAULT VALUES")
    both = entry(texts, b"(1)").and_then(entry(texts, b"(2)", b"(3)"))
    assert both is not None
    assert (both.captured, both.rows) == ((b"(1)", b"(2)", b"(3)"), 3)
    sql, _, bound = both.execution(sandbox=True)
    assert sql == b"sandbox"
    assert b'{"(1)","(2)","(3)"}' in bound


def test_what_may_meet_its_own_rows_again_is_done_again_apart() -> None:
    for sql in ("UPDATE t SET v = random()", "INSERT INTO t DEFAULT VALUES ON CONFLICT DO NOTHING"):
        texts = captured(sql)
        assert entry(texts, b"(1)").and_then(entry(texts, b"(1)")) is None
    one, other = captured("INSERT INTO t DEFAULT VALUES"), captured("INSERT INTO u DEFAULT VALUES")
    assert entry(one, b"(1)").and_then(entry(other, b"(1)")) is None


def kinds(messages: bytes) -> str:
    found, place = "", 0
    while place < len(messages):
        kind, length = frames.HEADER.unpack_from(messages, place)
        found += chr(kind)
        place += 1 + length
    return found


def test_a_text_that_comes_again_is_parsed_once() -> None:
    executions = Executions()
    for sql in (b"one", b"one", b"other", b"one"):
        executions.execute(sql, NO_PARAMETERS, NOTHING_BOUND)
    assert kinds(executions.take()) == "CPBE" + "BE" + "CPBE" + "BE" + "S"
    executions.execute(b"other", NO_PARAMETERS, NOTHING_BOUND)
    assert kinds(executions.take()) == "BES"


def test_more_texts_than_are_remembered_are_parsed_each_time() -> None:
    executions = Executions()
    for number in range(100):
        executions.execute(str(number).encode(), NO_PARAMETERS, NOTHING_BOUND)
    assert kinds(executions.take()) == "CPBE" * 100 + "S"
    executions.execute(b"0", NO_PARAMETERS, NOTHING_BOUND)
    assert kinds(executions.take()) == "CPBES"
