"""What a refused statement costs beside an accepted one, through the whole engine.

`pytest tests/perf/test_refusals.py -s`.

Both sides in one run, in turns. Run on a quiet machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import pytest
from psycopg import pq

from pytest_dsql.local.client import Engine
from tests.local.engines import connect

ROUNDS = 15
STATEMENTS = 200
#: Times what an accepted statement takes. SET is the least that PostgreSQL can be asked: its error path costs more.
MOST = {"statement": 1.15, "clause": 1.15, "parameter": 1.4, "definition": 1.0}

#: A refused statement, and an accepted one that does the least of its kind.
PAIRS = {
    "statement": ("TRUNCATE t", "SELECT k FROM t WHERE k = 1"),
    "clause": ("SELECT k FROM t WHERE k = 1 FOR SHARE", "SELECT k FROM t WHERE k = 1 FOR UPDATE"),
    "parameter": ("SET statement_timeout = 5", "SET extra_float_digits = 1"),
    "definition": ("CREATE TABLE u (k money)", "CREATE TABLE u (k int)"),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[pq.abc.PGconn]:
    with Engine.start_or_attach() as engine, connect(engine) as connection:
        connection.execute("CREATE TABLE t (k int PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        yield connection.pgconn


def _microseconds(send: Callable[[], object], times: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(times):
        send()
    return (time.perf_counter_ns() - begin) / times / 1_000


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("protocol", ["simple", "extended"])
def test_a_refused_statement_costs_no_more_than_an_accepted_one(
    connection: pq.abc.PGconn, kind: str, protocol: str
) -> None:
    refused, accepted = (text.encode() for text in PAIRS[kind])
    times = 10 if kind == "definition" else STATEMENTS

    def send(text: bytes) -> None:
        result = connection.exec_(text) if protocol == "simple" else connection.exec_params(text, None)
        assert (result.status == pq.ExecStatus.FATAL_ERROR) is (text == refused)
        if kind == "definition" and text == accepted:
            connection.exec_(b"DROP TABLE u")

    ratios = []
    for _ in range(ROUNDS):
        refused_us = _microseconds(lambda: send(refused), times)
        accepted_us = _microseconds(lambda: send(accepted), times)
        ratios.append(refused_us / accepted_us)
    print(f"{kind}, {protocol}: refused {refused_us:.0f} us, {statistics.median(ratios):.2f} of an accepted one")
    assert statistics.median(ratios) < MOST[kind]
