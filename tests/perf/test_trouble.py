"""What latency and faults cost where nothing is held back and nothing goes wrong, and how exact a held answer is.

Run on a quiet machine: `pytest tests/perf/test_trouble.py -s`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.local.faults.fault import Fault
from tests.local.engines import connect

ROUNDS = 7
STATEMENTS = 1_000


@pytest.fixture(scope="module")
def controls() -> Iterator[LocalControls]:
    with Engine.start_or_attach() as engine:
        yield LocalControls(engine, engine.cluster)


@pytest.fixture
def connection(controls: LocalControls) -> Iterator[psycopg.Connection[Any]]:
    with connect(controls.engine) as connection:
        yield connection
    controls.reset()


def round_trips(connection: psycopg.Connection[Any], count: int) -> list[float]:
    """Seconds of each of so many statements."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        connection.execute("SELECT 1", prepare=True)
        times.append(time.perf_counter() - began)
    return times


def test_a_fault_that_does_not_fit_costs_little(controls: LocalControls, connection: psycopg.Connection[Any]) -> None:
    with_fault, without = [], []
    for _ in range(ROUNDS):
        without.append(statistics.median(round_trips(connection, STATEMENTS)))
        with controls.faults(Fault.conflict(table="nowhere"), Fault.unavailable(on="ddl")):
            with_fault.append(statistics.median(round_trips(connection, STATEMENTS)))
    ratio = min(without) / min(with_fault)
    print(f"\nstatements with two faults that don't fit: {ratio:.2f} of the speed without")
    assert ratio > 0.85


@pytest.mark.parametrize("rtt_ms", [2, 5, 20])
def test_an_answer_comes_within_about_a_millisecond_of_its_time(
    controls: LocalControls, connection: psycopg.Connection[Any], tmp_path: Path, rtt_ms: int
) -> None:
    own = statistics.median(round_trips(connection, STATEMENTS)) * 1000
    file = tmp_path / "way.toml"
    file.write_text(f"rtt = {rtt_ms}\n")
    controls.latency.use(str(file))
    measured = statistics.median(round_trips(connection, 200)) * 1000
    print(f"\n{rtt_ms} ms: {measured:.2f} ms, {own:.2f} ms without")
    assert rtt_ms - 0.6 < measured < rtt_ms + own + 1.2
