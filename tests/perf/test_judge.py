"""What judging a new text costs, and what the dialect's import does: figures to read, printed with `-s`.

`pytest tests/perf/test_judge.py -s`; on a quiet machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from datetime import date

import pytest

from pytest_dsql.local.dialect import judge

TODAY = date(2026, 11, 1)
TARGET_US = 200.0  #: of an ordinary statement; the gateway asks once per text

ORDINARY = {
    "point read": "SELECT name, price FROM products WHERE tenant_id = $1 AND id = $2",
    "insert": "INSERT INTO orders (id, tenant_id, customer_id, total) VALUES ($1, $2, $3, $4) RETURNING id",
    "upsert": "INSERT INTO t (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v",
    "locking read": "SELECT balance FROM accounts WHERE id = $1 FOR UPDATE",
    "begin": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "commit": "COMMIT",
}
LARGE = {
    "create table": "CREATE TABLE t (k bigint PRIMARY KEY, a text NOT NULL, b numeric, c int CHECK (c > 0))",
    "create index": "CREATE UNIQUE INDEX ASYNC i ON t (a, b) INCLUDE (c) WHERE c > 10",
    "3,000 rows": "INSERT INTO t VALUES " + ",".join(f"({n}, 'name {n}', {n * 2})" for n in range(3_000)),
    "500 statements": ";".join(f"CREATE TABLE t{n} (k int PRIMARY KEY, v numeric)" for n in range(500)),
}


def _microseconds(sql: str) -> float:
    judge(sql, TODAY)  # processor time below: the target is about work, and this machine may have other work
    repeats = 3 if len(sql) > 1_000 else 500
    samples = []
    for _ in range(5):
        begin = time.process_time_ns()
        for _ in range(repeats):
            judge(sql, TODAY)
        samples.append((time.process_time_ns() - begin) / repeats / 1_000)
    return statistics.median(samples)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_statement(name: str) -> None:
    took = _microseconds(ORDINARY[name])
    print(f"{name}: {took:.0f} us")
    assert took < TARGET_US


@pytest.mark.parametrize("name", LARGE)
def test_a_large_text(name: str) -> None:
    print(f"{name}: {_microseconds(LARGE[name]) / 1_000:.2f} ms")


def test_import_and_first_judgement() -> None:
    program = (
        "import time; a = time.perf_counter(); from pytest_dsql.local import dialect; b = time.perf_counter();"
        "from datetime import date; dialect.judge('SELECT 1', date(2026, 11, 1)); c = time.perf_counter();"
        "print((b - a) * 1e3, (c - b) * 1e3)"
    )
    runs = [
        [
            float(ms)
            for ms in subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.split()
        ]
        for _ in range(5)
    ]
    imported, first = (statistics.median(times) for times in zip(*runs, strict=True))
    print(f"import {imported:.0f} ms, first judgement (reads the rules, loads the parser) {first:.0f} ms")
