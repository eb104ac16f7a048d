"""What it costs to count what a transaction writes: the same statements with and without the counting triggers.

Run on a quiet machine: `pytest tests/perf/test_row_limits.py -s`.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.account import choose_account
from pytest_dsql.local.clusters import Clusters
from pytest_dsql.local.directories import runtime_base
from pytest_dsql.local.installation import find_installation

ROUNDS = 9
STATEMENTS = 400


@pytest.fixture(scope="module")
def owner() -> Iterator[psycopg.Connection[Any]]:
    """A direct connection to a PostgreSQL with two equal tables, of which one is not counted."""
    directory = Path(tempfile.mkdtemp(prefix="p-", dir=runtime_base()))
    clusters = Clusters(
        directory, find_installation(), choose_account(), region="eu-central-1", rules=date(2026, 10, 1), ended=print
    )
    try:
        cluster = clusters.add_default(None)
        with psycopg.connect(
            host=str(Path(cluster.socket_path).parent), user="pytest_dsql_engine", dbname="postgres", autocommit=True
        ) as owner:
            owner.execute("SET search_path = public")
            for table in ("counted", "uncounted"):
                owner.execute(
                    f"CREATE TABLE {table} (id int PRIMARY KEY, customer uuid, note text, at timestamptz)".encode()
                )
                fill(owner, table)
            for event in ("insert", "update", "delete"):
                owner.execute(f"DROP TRIGGER dsql_limits_{event} ON uncounted".encode())
            yield owner
    finally:
        clusters.close()
        shutil.rmtree(directory)


def fill(owner: psycopg.Connection[Any], table: str) -> None:
    rows = "SELECT n, gen_random_uuid(), 'note ' || n, now() FROM generate_series(1, 3000) AS n"
    owner.execute(f"INSERT INTO {table} {rows}".encode())


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratio(work: Callable[[str], object]) -> float:
    """How much longer it takes with the counting: the median of rounds, in each of which both are measured."""
    for table in ("counted", "uncounted"):
        work(table)
    ratios = [seconds(lambda: work("counted")) / seconds(lambda: work("uncounted")) for _ in range(ROUNDS)]
    found = statistics.median(ratios)
    print(f"\ncounted/uncounted: {found:.2f} (of {ROUNDS} rounds: {min(ratios):.2f} to {max(ratios):.2f})")
    return found


def test_a_statement_that_writes_one_row(owner: psycopg.Connection[Any]) -> None:
    def update(table: str) -> None:
        for n in range(STATEMENTS):
            owner.execute(f"UPDATE {table} SET at = now() WHERE id = %s".encode(), (n + 1,), prepare=True)

    assert ratio(update) <= 1.35


def test_a_statement_that_writes_as_many_rows_as_it_may(owner: psycopg.Connection[Any]) -> None:
    def rewrite(table: str) -> None:
        owner.execute(f"DELETE FROM {table}".encode())
        fill(owner, table)

    assert ratio(rewrite) <= 3.0
