"""The progress line appears on terminals only, and leaves nothing behind."""

from __future__ import annotations

import io

from pytest_dsql.load.fleet import Progress
from pytest_dsql.report.progress import ProgressLine
from pytest_dsql.workloads.orders.loader import LoadProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def screen(stream: io.StringIO) -> str:
    """Return what the line shows after everything that was written: it is erased from its start."""
    return stream.getvalue().rpartition("\r\x1b[K")[2]


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
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        line.show("loading")
        line.cell("t")(progress())
    assert stream.getvalue() == ""


def test_a_cell() -> None:
    stream = Terminal()
    ProgressLine(stream).cell("tests/test_shop.py::test_orders[4]")(progress())
    assert screen(stream) == "test_shop.py::test_orders[4]: window 3/8 s, 1,234 requests, 411/s"


def test_errors_are_shown_by_sqlstate() -> None:
    stream = Terminal()
    ProgressLine(stream).cell("t")(progress(errors={"40001": 3}))
    assert screen(stream).endswith("411/s, errors: 40001 3")


def test_connecting_has_no_planned_end() -> None:
    stream = Terminal()
    ProgressLine(stream).cell("t")(progress(phase="connecting", phase_s=None, outcomes={}, connected=2))
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
    assert "\n" not in stream.getvalue()


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
    assert len(screen(stream)) < 500
