"""What happens beside a cell."""

from __future__ import annotations

import threading
import time

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.stretch import Beside
from pytest_dsql.load.fleet import Phase, Progress


def at(phase: Phase) -> Progress:
    return Progress(phase, 0.0, None, connected=1, connections=1, outcomes={}, tps=0.0)


def test_it_begins_once_and_only_in_the_window() -> None:
    begun: list[str] = []
    shown: list[str] = []
    beside = Beside(lambda: begun.append(threading.current_thread().name))
    watch = beside.watching(lambda progress: shown.append(progress.phase))
    for phase in ("connecting", "warm-up"):
        watch(at(phase))
    assert begun == []
    for _ in range(3):
        watch(at("window"))
    beside.wait()
    beside.raise_its_error()
    assert begun == ["beside the cell"]
    assert shown == ["connecting", "warm-up", "window", "window", "window"]


def test_without_work_nothing_is_in_the_way() -> None:
    def show(_progress: Progress) -> None:
        """Show nothing."""

    beside = Beside(None)
    assert beside.watching(show) is show
    beside.wait()
    beside.raise_its_error()


def test_what_it_raises_comes_back() -> None:
    def fail() -> None:
        raise RuntimeError("the index could not be made")

    beside = Beside(fail)
    beside.watching(lambda _progress: None)(at("window"))
    beside.wait()
    with pytest.raises(RuntimeError, match="could not be made"):
        beside.raise_its_error()


def test_work_that_never_began_is_no_success() -> None:
    beside = Beside(lambda: None)
    beside.watching(lambda _progress: None)(at("drain"))
    with pytest.raises(UsageError, match="too short"):
        beside.raise_its_error()


def test_waiting_has_an_end() -> None:
    release = threading.Event()
    beside = Beside(release.wait)
    beside.watching(lambda _progress: None)(at("window"))
    began = time.monotonic()
    beside.wait(0.05)
    assert time.monotonic() - began < 30
    release.set()
    beside.wait()
