"""How long the loop stays awake for what may come, and when it doesn't."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pytest_dsql.local.gateway.vigil import Vigil


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Yields:
    """Counts how often the core was offered to others, and lets some of these take a while."""

    def __init__(self, patch: pytest.MonkeyPatch, taken_s: float = 0.0) -> None:
        self.count = 0
        self.taken_s = taken_s
        patch.setattr(os, "sched_yield", self._yield)

    def _yield(self) -> None:
        self.count += 1
        if self.taken_s:
            time.sleep(self.taken_s)

    def taken(self) -> int:
        """The count since the last time."""
        found, self.count = self.count, 0
        return found


@in_a_loop
async def test_it_looks_for_a_moment_and_then_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    yields = Yields(monkeypatch)
    deadline = time.monotonic() + 60
    looked = 0
    while not looked and time.monotonic() < deadline:  # a busy machine may not run it in time
        vigil = Vigil(asyncio.get_running_loop(), cores=2)
        vigil.stay(vigil.answer)
        await asyncio.sleep(0.01)
        looked = yields.taken()
    assert looked > 0
    await asyncio.sleep(0.01)
    assert yields.taken() == 0


@in_a_loop
async def test_where_there_is_one_core_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    yields = Yields(monkeypatch)
    vigil = Vigil(asyncio.get_running_loop(), cores=1)
    vigil.stay(vigil.answer)
    await asyncio.sleep(0.01)
    assert yields.taken() == 0


@in_a_loop
async def test_where_several_sessions_are_busy_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    yields = Yields(monkeypatch)
    vigil = Vigil(asyncio.get_running_loop(), cores=2)
    for several in (2, 3, 16):
        for _ in range(several):
            vigil.stay(vigil.answer)
        await asyncio.sleep(0.001)
    assert yields.taken() == 0
    assert vigil.answer.misses == 0


@in_a_loop
async def test_it_sleeps_where_somebody_else_wants_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    yields = Yields(monkeypatch, taken_s=0.001)
    vigil = Vigil(asyncio.get_running_loop(), cores=2)
    for _ in range(50):
        vigil.stay(vigil.answer)
        await asyncio.sleep(0.001)
    assert 0 < yields.taken() < 10  # each time it rests longer
    yields.taken_s = 0.0
    deadline = time.monotonic() + 60
    while not yields.count and time.monotonic() < deadline:
        vigil.stay(vigil.answer)
        await asyncio.sleep(0.01)
    assert yields.count > 0


@in_a_loop
async def test_what_never_comes_is_hardly_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that thinks: the answers come, its next statement doesn't."""
    yields = Yields(monkeypatch)
    vigil = Vigil(asyncio.get_running_loop(), cores=2)
    waited = 0
    for _ in range(100):
        vigil.stay(vigil.answer)
        await asyncio.sleep(0)
        vigil.stay(vigil.statement)
        yields.taken()
        await asyncio.sleep(0.001)
        waited += yields.taken() > 0
    assert waited < 10  # after 1, 2, 4, 8, ... of them
    assert vigil.answer.misses < vigil.statement.misses  # the one doesn't discourage the other


@in_a_loop
async def test_what_comes_again_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Yields(monkeypatch)
    vigil = Vigil(asyncio.get_running_loop(), cores=2)
    for _ in range(100):
        vigil.stay(vigil.statement)
        await asyncio.sleep(0.001)
    assert vigil.statement.misses > 0
    deadline = time.monotonic() + 60
    while vigil.statement.misses and time.monotonic() < deadline:
        vigil.stay(vigil.statement)
        await asyncio.sleep(0)
        vigil.stay(vigil.answer)  # it has come
        await asyncio.sleep(0.001)
    assert vigil.statement.misses == vigil.statement.passes == 0
