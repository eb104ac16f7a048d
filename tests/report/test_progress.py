"""The progress line appears on terminals only, and leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from pytest_dsql.load.fleet import Progress
from pytest_dsql.report.progress import ProgressLine
from pytest_dsql.workloads.loading import LoadProgress
from tests.screen import Screen


class Stream(io.StringIO):
    def columns(self) -> int:
        return 80


class Terminal(Stream):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def screen(stream: io.StringIO) -> str:
    """Return what is to be seen after everything that was written."""
    shown = Screen()
    shown.feed(stream.getvalue())
    return shown.text


def progress(**changes: object) -> Progress:
    facts: dict[str, object] = {
        "phase": "window",
        "elapsed_s": 3.2,
        "phase_s": 8.0,
        "connected": 4,
        "connections": 4,
        "outcomes": {"ok": 1200, "rejected": 34},
        "tps": 411.0,
        "errors": {},
    }
    return Progress(**(facts | changes))  # type: ignore[arg-type]  # the tests change any of them


def test_nothing_without_a_terminal() -> None:
    stream = Stream()
    with ProgressLine(stream) as line, line.cell("t") as show:
        line.show("loading")
        show(progress())
    assert stream.getvalue() == ""


def test_a_cell() -> None:
    stream = Terminal()
    with ProgressLine(stream).cell("tests/test_shop.py::test_orders[4]") as show:
        show(progress())
        assert screen(stream) == "test_shop.py::test_orders[4]: window 3/8 s, 1,234 requests, 411/s"
    assert screen(stream) == ""


def test_errors_are_shown_by_sqlstate() -> None:
    stream = Terminal()
    with ProgressLine(stream).cell("t") as show:
        show(progress(errors={"40001": 3}))
        assert screen(stream).endswith("411/s, errors: 40001 3")


def test_connecting_has_no_planned_end() -> None:
    stream = Terminal()
    with ProgressLine(stream).cell("t") as show:
        show(progress(phase="connecting", phase_s=None, outcomes={}, connected=2))
        assert screen(stream) == "t: connecting 3 s, 2/4 connections"


def test_loading() -> None:
    stream = Terminal()
    ProgressLine(stream).loading(LoadProgress(rows=5000, total_rows=20_000, elapsed_s=2.0, step="rows"))
    assert screen(stream) == "loading rows: 5,000 of 20,000 rows (25%), 2,500/s"


def test_it_overwrites_itself_and_is_gone_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with ProgressLine(stream, clock=clock) as line:
        line.show("first")
        clock.now += 1
        line.show("second")
        assert screen(stream) == "second"
    assert screen(stream) == ""


@pytest.mark.parametrize("above", [0, 2, 23, 40])
def test_the_line_that_pytest_writes_meanwhile_stays_as_it_is(above: int) -> None:
    stream, clock = Terminal(), Clock()
    stream.write("\n" * above + "test_shop.py .")
    with ProgressLine(stream, clock=clock) as line:
        line.show("a rather long first line")
        assert screen(stream) == "test_shop.py .\na rather long first line"
        clock.now += 1
        line.show("second")
        assert screen(stream) == "test_shop.py .\nsecond"
        stream.write(".")
    stream.write("F\n")
    assert screen(stream) == "test_shop.py ..F"


def test_nothing_on_a_terminal_that_cannot_erase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    ProgressLine(stream).show("first")
    assert stream.getvalue() == ""


def test_it_is_rate_limited() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, clock=clock)
    for number in range(50):
        line.show(str(number))
        clock.now += 0.01
    assert stream.getvalue().count("\r") <= 6


def test_clearing_makes_way_at_once() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, clock=clock)
    line.show("first")
    line.clear()
    line.show("second")
    assert screen(stream) == "second"


def test_clearing_nothing_writes_nothing() -> None:
    stream = Terminal()
    ProgressLine(stream).clear()
    assert stream.getvalue() == ""


def test_a_line_never_fills_the_terminal() -> None:
    stream = Terminal()
    ProgressLine(stream).show("x" * 10_000)
    assert screen(stream) == "x" * 79
