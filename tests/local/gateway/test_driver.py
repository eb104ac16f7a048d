"""The slow way's own end, apart from connections."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_dsql.local.gateway.driver import Driver


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("begun", [False, True])
def test_work_is_ended_with_its_session_whether_it_has_begun_or_not(begun: bool) -> None:
    """A client's next bytes, which are none of the protocol's, may come before the loop has taken the first step."""
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        try:
            await asyncio.sleep(600)
        finally:
            steps.append("ended")

    async def main() -> None:
        driver = Driver(cast(Any, SimpleNamespace(express=SimpleNamespace(clear=True))))
        something = work()
        driver.start(something)
        if begun:
            await asyncio.sleep(0)
        driver.stop()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        assert inspect.getcoroutinestate(something) == inspect.CORO_CLOSED

    asyncio.run(main())
    assert steps == (["begun", "ended"] if begun else [])
