"""What work costs, on a real engine: the estimate below a plan, and the totals."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.client import Engine, LocalCluster
from pytest_dsql.local.dpu.formulas import READ, READ_MINIMUM, WRITE, WRITE_MINIMUM
from pytest_dsql.local.options import EngineOptions
from tests.local.engines import connect

LINE = re.compile(r"\s*(Compute|Read|Write|Multi-?Region.*|Total):\s+([0-9.]+) DPU")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.start_or_attach() as engine:
        yield engine


@pytest.fixture
def connection(engine: Engine) -> Iterator[psycopg.Connection[Any]]:
    with connect(engine) as connection:
        connection.execute("CREATE TABLE stock (id int PRIMARY KEY, place text, n int)")
        connection.execute("INSERT INTO stock SELECT i, 'here', i FROM generate_series(1, 200) AS i")
        yield connection
        connection.execute("DROP TABLE stock")


def build(connection: psycopg.Connection[Any], index: str) -> None:
    """Create an index and wait for it; its end is a change of the catalog that the session then has met."""
    job = connection.execute(index.encode()).fetchone()
    assert job is not None
    connection.execute(f"CALL sys.wait_for_job('{job[0]}')".encode())
    with contextlib.suppress(psycopg.errors.SerializationFailure):
        connection.execute("SELECT count(*) FROM pg_class")


def explained(connection: psycopg.Connection[Any], sql: str, parameters: list[Any] | None = None) -> list[str]:
    return [row[0] for row in connection.execute(sql.encode(), parameters).fetchall()]


def estimate(lines: list[str]) -> dict[str, float]:
    place = lines.index("Statement DPU Estimate:")
    assert place == max(place, len(lines) - 5 - ("Region" in "".join(lines)))
    found = [LINE.match(line) for line in lines[place + 1 :]]
    return {one[1]: float(one[2]) for one in found if one}


def test_a_read_ends_with_the_estimate(connection: psycopg.Connection[Any]) -> None:
    lines = explained(connection, "EXPLAIN ANALYZE VERBOSE SELECT * FROM stock WHERE id = 7")
    found = estimate(lines)
    assert found["Read"] == pytest.approx(128 * READ, abs=1e-5)
    assert found["Write"] == 0
    assert found["Compute"] > 0
    assert found["Total"] == pytest.approx(sum(found.values()) - found["Total"], abs=3e-5)
    assert lines[-3].endswith("DPU (Transaction minimum: 0.00375)")


def test_a_large_read_costs_its_rows(connection: psycopg.Connection[Any]) -> None:
    found = estimate(explained(connection, "EXPLAIN (ANALYZE, VERBOSE) SELECT sum(n) FROM stock WHERE n > 100"))
    assert found["Read"] == pytest.approx(200 * 128 * READ, rel=0.01)


def test_a_write_counts_index_entries(connection: psycopg.Connection[Any]) -> None:
    insert = "EXPLAIN ANALYZE VERBOSE INSERT INTO stock VALUES ({0}, 'x', 1), ({1}, 'x', 2)"
    without = estimate(explained(connection, insert.format(1001, 1002)))
    assert without["Write"] == pytest.approx(2 * 128 * WRITE, abs=1e-5)
    build(connection, "CREATE INDEX ASYNC ON stock (place)")
    with_index = estimate(explained(connection, insert.format(1003, 1004)))
    assert with_index["Write"] == pytest.approx(2 * 256 * WRITE, abs=1e-5)
    update = "EXPLAIN ANALYZE VERBOSE UPDATE stock SET {0} WHERE id = 1"
    assert estimate(explained(connection, update.format("n = 5")))["Write"] == pytest.approx(128 * WRITE, abs=1e-5)
    moved = estimate(explained(connection, update.format("place = 'y'")))
    assert moved["Write"] == pytest.approx(256 * WRITE, abs=1e-5)


def test_the_statement_has_run_and_its_tag_is_explains(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("EXPLAIN ANALYZE VERBOSE DELETE FROM stock WHERE id = 3")
    assert cursor.statusmessage == "EXPLAIN"
    assert connection.execute("SELECT count(*) FROM stock").fetchone() == (199,)


def test_parameters_and_prepared_statements_work(connection: psycopg.Connection[Any]) -> None:
    for _ in range(2):
        cursor = connection.execute(
            "EXPLAIN ANALYZE VERBOSE SELECT * FROM stock WHERE id = %s", [7], prepare=True, binary=True
        )
        assert estimate([row[0] for row in cursor.fetchall()])["Read"] > 0


def test_json_has_the_estimate_too(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) SELECT * FROM stock").fetchone()
    assert row is not None
    [answer] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    assert answer["Statement DPU Estimate"]["Read"] == pytest.approx(200 * 128 * READ, abs=1e-5)


@pytest.mark.parametrize(
    "options", ["ANALYZE", "VERBOSE", "(ANALYZE, VERBOSE false)", "(ANALYZE, VERBOSE, FORMAT YAML)"]
)
def test_without_both_options_there_is_none(connection: psycopg.Connection[Any], options: str) -> None:
    lines = explained(connection, f"EXPLAIN {options} SELECT * FROM stock")
    assert "DPU" not in "".join(lines)


def test_an_estimate_in_a_transaction_and_in_a_query_string(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("UPDATE stock SET n = 0 WHERE id = 1")
        lines = explained(connection, "EXPLAIN ANALYZE VERBOSE UPDATE stock SET n = 1 WHERE id = 1")
        assert estimate(lines)["Write"] > 0
    cursor = connection.execute(b"SELECT 1; EXPLAIN ANALYZE VERBOSE SELECT 2")
    cursor.nextset()
    assert estimate([row[0] for row in cursor.fetchall()])["Read"] == 0


def test_an_error_is_just_an_error(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("EXPLAIN ANALYZE VERBOSE SELECT 1/0")


def test_the_totals_count_transactions_with_their_minimums(engine: Engine, connection: psycopg.Connection[Any]) -> None:
    engine.reset_dpu()
    for i in range(10):
        connection.execute("SELECT * FROM stock WHERE id = %s", [i + 1])
    reading = engine.dpu()
    assert (reading.transactions, reading.writing_transactions, reading.write) == (10, 0, 0)
    assert reading.read == pytest.approx(10 * READ_MINIMUM, rel=1e-3)
    engine.reset_dpu()
    for i in range(5):
        with connection.transaction():
            connection.execute("UPDATE stock SET n = n + 1 WHERE id = %s", [i + 1])
            connection.execute("INSERT INTO stock VALUES (%s, 'x', 1)", [5000 + i])
    writing = engine.dpu()
    assert (writing.transactions, writing.writing_transactions) == (5, 5)
    assert writing.write == pytest.approx(5 * WRITE_MINIMUM, rel=1e-3)
    engine.reset_dpu()
    connection.execute("UPDATE stock SET n = 0 WHERE id <= 100")
    assert engine.dpu().write == pytest.approx(100 * 128 * WRITE, rel=0.01)


def test_a_table_is_found_in_its_schema_and_weighed_by_its_rows(
    engine: Engine, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE SCHEMA shop")
    connection.execute("CREATE TABLE shop.notes (id int PRIMARY KEY, note text)")
    build(connection, "CREATE INDEX ASYNC ON shop.notes (note)")
    connection.execute("SET search_path = shop")
    engine.reset_dpu()
    connection.execute("INSERT INTO notes SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 50) AS i")
    assert engine.dpu().write == pytest.approx(50 * (970 + 128) * WRITE, rel=0.05)
    connection.execute("RESET search_path")
    connection.execute("DROP SCHEMA shop CASCADE")


def test_what_was_rolled_back_was_not_written(engine: Engine, connection: psycopg.Connection[Any]) -> None:
    engine.reset_dpu()
    connection.execute("BEGIN")
    connection.execute("UPDATE stock SET n = 0")
    connection.execute("ROLLBACK")
    assert engine.dpu().write == 0


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is asked of /proc")
def test_compute_is_the_processor_time_of_postgresql(engine: Engine, connection: psycopg.Connection[Any]) -> None:
    engine.reset_dpu()
    connection.execute("SELECT sum(i::bigint * i) FROM generate_series(1, 3000000) AS i")
    compute = engine.dpu().compute
    assert compute is not None
    assert compute > 0.05


def test_a_cluster_of_two_regions_writes_twice() -> None:
    options = EngineOptions().with_settings({"regions": "us-east-1+us-east-2"})
    with Engine.start_or_attach(options=options) as engine:
        second = engine.cluster.endpoints[1]
        with connect(engine, LocalCluster(second.id, second.region, second.host)) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            lines = explained(connection, "EXPLAIN ANALYZE VERBOSE INSERT INTO t VALUES (1)")
            found = estimate(lines)
            assert found["MultiRegionWrite"] == found["Write"] > 0
            engine.reset_dpu()
            connection.execute("INSERT INTO t VALUES (2)")
        totals = engine.dpu()
        assert totals.multi_region_write == totals.write > 0


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has loaded is asked of /proc")
def test_no_client_library_is_loaded_for_the_first_write_that_is_explained() -> None:
    """It took the first one 0.3 to 2.6 s, in the middle of a statement; the engine has a connection of its own."""
    with Engine.start_or_attach() as engine, connect(engine) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        assert estimate(explained(connection, "EXPLAIN ANALYZE VERBOSE INSERT INTO t VALUES (1)"))["Write"] > 0
        loaded = Path(f"/proc/{engine.pid}/maps").read_text()
    assert "psycopg" not in loaded
    assert "python" in loaded
