"""What a row costs in the sandbox of a contested transaction, beside the same row in its table: `-s` prints it.

`pytest tests/perf/test_sandbox.py -s`; on a quiet machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pytest_dsql.local.adjudicator.sandbox import ENTER
from pytest_dsql.local.cluster import Cluster
from tests.local.adjudicator.sandbox.conftest import cluster
from tests.local.adjudicator.sandbox.harness import Server

__all__ = ["cluster"]

ROWS = 500
RATIO = 12.0  #: a row in the sandbox to a row in the table
TARGET_US = 60.0  #: for each row that a contested transaction has written

STATEMENTS = {
    "update": f"UPDATE t SET v = 'new' WHERE id <= {ROWS}",
    "insert": f"INSERT INTO t SELECT g, 'new' FROM generate_series(10001, {10000 + ROWS}) AS g",
    "delete": f"DELETE FROM t WHERE id <= {ROWS}",
}


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    with Server(cluster) as server:
        server.admin.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
        server.admin.execute("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 2000) AS g")
        server.catalog()
        yield server


def microseconds(server: Server, sql: str, *first: str) -> float:
    """The time of a statement for each of its rows: the least of some, whatever else this machine does."""
    samples = []
    for _ in range(6):
        with server.admin.transaction(force_rollback=True):
            for text in first:
                server.admin.execute(text.encode())
            begin = time.perf_counter_ns()
            server.admin.execute(sql.encode())
            samples.append((time.perf_counter_ns() - begin) / 1_000 / ROWS)
    return min(samples)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_row(server: Server, name: str) -> None:
    table = microseconds(server, STATEMENTS[name])
    sandbox = microseconds(server, STATEMENTS[name], ENTER)
    print(f"\n{name}: {table:.1f} us in the table, {sandbox:.1f} us in the sandbox (target {TARGET_US:.0f})")
    assert sandbox < max(TARGET_US, RATIO * table)


@pytest.mark.parametrize("rows", [0, 1_000])
def test_a_statement_on_one_row(server: Server, rows: int) -> None:
    written = f"UPDATE t SET v = 'new' WHERE id BETWEEN 2 AND {rows}"
    one = microseconds(server, "UPDATE t SET v = 'x' WHERE id = 1", ENTER, written) * ROWS
    print(f"\none row after {rows} others: {one:.0f} us")
    assert one < 50_000
