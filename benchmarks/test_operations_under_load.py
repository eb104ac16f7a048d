"""Operations under load: what index builds, new columns, bulk deletes, ending sessions and tokens do to orders."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.local.controls import LocalControls
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.orders.workload import Orders

from .test_e002_closed_loop import SLO

pytestmark = [pytest.mark.dsql, pytest.mark.dsql_slow]

Connect = Callable[..., "psycopg.Connection[Any]"]

#: DSQL allows 3,000 modified rows per transaction (AWS user guide, "Cluster quotas and database limits").
BATCH = 2_500
#: Where connections are to be made anew all the time.
SESSION_S = 3.0


@pytest.fixture(autouse=True)
def long_enough(dsql_plan: Plan) -> None:
    """Skip where the plan's cells are too short to decide the SLO beside what happens."""
    if dsql_plan.beside_window_s is None:
        pytest.skip(f"the plan {dsql_plan.name!r} has no time for operations under load: --dsql-plan full")


@pytest.fixture
def define(dsql_connect: Connect) -> Callable[[str], list[tuple[Any, ...]]]:
    """Run a statement in autocommit, again after a conflict or a change of the catalog."""

    def run(sql: str) -> list[tuple[Any, ...]]:
        with dsql_connect() as connection:
            for _attempt in range(20):
                try:
                    cursor = connection.execute(sql)
                    return cursor.fetchall() if cursor.description else []
                except psycopg.errors.SerializationFailure:
                    time.sleep(0.05)
        raise AssertionError(f"no attempt succeeded: {sql}")

    return run


def test_an_index_is_built_beside_the_orders(
    dsql_load: Load,
    dsql_orders: Orders,
    dsql_plan: Plan,
    connections: int,
    define: Callable[[str], list[tuple[Any, ...]]],
    dsql_endpoint: Any,
) -> None:
    """CREATE INDEX ASYNC while the mix runs; transactions meet OC001 when it begins and when it ends, and retry."""
    name = "orders_under_load"
    on_dsql = dsql_endpoint.dialect == "dsql"

    def build() -> None:
        define(f"DROP INDEX IF EXISTS {SCHEMA}.{name}")  # a cell that extends itself builds it again
        job = define(f"CREATE INDEX {'ASYNC' if on_dsql else ''} {name} ON {SCHEMA}.orders (total)")
        if on_dsql:
            assert define(f"CALL sys.wait_for_job('{job[0][0]}')") == [(True,)]

    try:
        cell = dsql_load.closed(
            dsql_orders.mix, connections=connections, duration=dsql_plan.beside_window_s, during=build
        )
        cell.assert_meets(SLO)
    finally:
        define(f"DROP INDEX IF EXISTS {SCHEMA}.{name}")


def test_a_column_is_added_beside_the_orders(
    dsql_load: Load,
    dsql_orders: Orders,
    dsql_plan: Plan,
    connections: int,
    define: Callable[[str], list[tuple[Any, ...]]],
    dsql_endpoint: Any,
) -> None:
    """ADD COLUMN and DROP COLUMN while the mix runs: on DSQL, OC001 once for every session, and a retry that passes."""

    def change() -> None:
        define(f"ALTER TABLE {SCHEMA}.customers ADD COLUMN under_load bigint")
        define(f"ALTER TABLE {SCHEMA}.customers DROP COLUMN under_load")

    cell = dsql_load.closed(dsql_orders.mix, connections=connections, duration=dsql_plan.beside_window_s, during=change)
    if dsql_endpoint.dialect == "dsql":
        assert cell.errors.get("40001", 0) > 0
        assert cell.outcomes["ok_retried"] > 0
    cell.assert_meets(SLO)


def test_many_rows_are_deleted_beside_the_orders(
    dsql_load: Load,
    dsql_orders: Orders,
    dsql_plan: Plan,
    connections: int,
    define: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    """Rows are loaded and deleted in batches that respect the limit of 3,000 rows per transaction."""
    table = "public.delete_under_load"
    define(f"DROP TABLE IF EXISTS {table}")
    define(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
    batches = range(4)

    def fill_and_delete() -> None:
        for batch in batches:
            first = batch * BATCH
            define(f"INSERT INTO {table} SELECT * FROM generate_series({first}, {first + BATCH - 1})")
        for _batch in batches:
            define(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT {BATCH})")

    try:
        cell = dsql_load.closed(
            dsql_orders.mix, connections=connections, duration=dsql_plan.beside_window_s, during=fill_and_delete
        )
        cell.assert_meets(SLO)
        assert define(f"SELECT count(*) FROM {table}") == [(0,)]
    finally:
        define(f"DROP TABLE IF EXISTS {table}")


def test_sessions_end_beside_the_orders(
    dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, connections: int, dsql_local: LocalControls
) -> None:
    """The engine's clock goes on by an hour: every session is cut, and no order is lost or made twice."""
    cell = dsql_load.closed(
        dsql_orders.mix,
        connections=connections,
        duration=dsql_plan.beside_window_s,
        during=lambda: dsql_local.clock.move(3_700),
    )
    cell.assert_consistent()
    assert cell.connect.succeeded > connections


def test_tokens_are_renewed_beside_the_orders(
    dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, connections: int, dsql_local: LocalControls
) -> None:
    """Connections are made anew all the time, and twice every token runs out: each then needs one that was just signed.

    A token lives 15 minutes (AWS user guide, "Generating an authentication token in Amazon Aurora DSQL"); the engine's
    clock goes on by more than that. Nothing is lost, and next to nothing fails for want of a token.
    """
    dsql_local.limits.set(session_s=SESSION_S)

    def expire() -> None:
        for _time in range(2):
            # A token tells the second in which it was signed: until the next one, the engine takes new ones for old.
            time.sleep(2 * SESSION_S - time.time() % 1 + 0.98)
            dsql_local.clock.move(1_000)

    cell = dsql_load.closed(dsql_orders.mix, connections=connections, duration=dsql_plan.beside_window_s, during=expire)
    cell.assert_consistent()
    assert cell.connect.tokens_signed >= 3
    assert cell.connect.succeeded >= 3 * connections
    assert cell.failure_rate < 0.01
