"""One engine for all of these tests; what they run in a pytest of its own attaches to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.settings import ENGINE_VARIABLE


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as running:
        yield running


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """As ever, but that its runs don't load Hypothesis, which takes them longer than all else at their start."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


@pytest.fixture
def attached(engine: Engine, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytester whose runs use that engine."""
    monkeypatch.setenv(ENGINE_VARIABLE, str(engine.control))
    return pytester


#: A test module whose one transaction takes no data.
CELL = """
import pytest
from pytest_dsql import Latency, Mix, Slo, ms, transaction

@transaction(kind="read")
def one(ctx):
    yield "SELECT $1::bigint", (ctx.rng.randrange(100),)

MIX = Mix({one: 1.0})
"""

#: Further, a mix whose workload finds after each cell that it has violated an invariant.
VOID = (
    CELL
    + """
from pytest_dsql.transaction import CellRun

class Broken:
    scale = None
    def begin_cell(self, connect, *, cell, slots, requests_hint, shares=None):
        return CellRun(number=1, operation_prefix="x", slots=slots)
    def check_cell(self, connect, run, tally):
        return {"nothing_lost": 3}

BROKEN = Mix({one: 1.0}, workload=Broken())
"""
)
