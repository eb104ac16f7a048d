"""The loader: exact whatever happens to it, and within the limits of a DSQL transaction."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pytest_dsql.errors import DataLoadFailed, UsageError
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.orders import loader
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.loader import Connect, land, reserve_chunks
from pytest_dsql.workloads.orders.scales import SCALES, OrdersScale
from pytest_dsql.workloads.orders.schema import SCHEMA, TABLES
from pytest_dsql.workloads.orders.workload import Orders
from tests.plain_postgres import PlainPostgres

#: A few chunks of every kind.
SCALE = OrdersScale("chunks", tenants=3, customers=2_600, products=1_300, orders=1_600, set_aside=800)


def _assert_exact(connect: Connect, scale: OrdersScale, seed: int = 1) -> None:
    """Every table holds the rows of the generator, no more and no less."""
    data = OrdersData(scale, seed)
    products, stock = data.products_text(range(scale.products))
    orders, items, ledger = data.orders_text(range(scale.orders))
    expected = {
        "tenants": data.tenants_text(range(scale.tenants)),
        "products": products,
        "inventory": stock,
        "orders": orders,
        "order_items": items,
        "ledger": ledger,
    }
    with connect() as connection:
        for table, text in expected.items():
            with connection.cursor().copy(f"COPY (SELECT * FROM {SCHEMA}.{table} ORDER BY 1, 2) TO STDOUT") as copy:
                assert b"".join(bytes(block) for block in copy) == text, table
        customers = connection.execute(f"SELECT * FROM {SCHEMA}.customers ORDER BY id").fetchall()
    assert customers == [tuple(data.customer(index)) for index in range(scale.customers)]


def _prepare(connect: Connect, *statements: str) -> None:
    """Make the tables and some mischief in them, as an interrupted load would find them."""
    from pytest_dsql.workloads.identity import claim_schema
    from pytest_dsql.workloads.sessions import Session

    with Session(connect) as session:
        claim_schema(session, Orders(SCALE)._identity, dialect="postgresql")
        for statement in (*TABLES.values(), *statements):
            session.execute(statement)


def _failing_once(table: str, message: str, sqlstate: str, *, deferred: bool) -> tuple[str, ...]:
    """Make the third transaction that writes `table` fail: at its COMMIT when `deferred`, else at once."""
    kind = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
    when = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
    return (
        "CREATE SEQUENCE public.writes",
        f"""CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('public.writes') = 3 THEN RAISE EXCEPTION '{message}' USING ERRCODE = '{sqlstate}'; END IF;
            RETURN NULL; END $$""",
        f"""CREATE {kind} fail AFTER INSERT ON {SCHEMA}.{table} {when}
            FOR EACH ROW EXECUTE FUNCTION public.fail()""",
    )


def test_a_load_holds_exactly_the_rows_of_the_generator(connect: Connect) -> None:
    report = Orders(SCALE, seed=9).load(connect, dialect="postgresql")
    assert (report.rows, report.total_rows, report.already_loaded) == (SCALE.total_rows, SCALE.total_rows, False)
    _assert_exact(connect, SCALE, seed=9)


def test_a_loaded_schema_is_left_alone(loaded: Connect) -> None:
    report = Orders("tiny").load(loaded, dialect="postgresql")
    assert (report.rows, report.already_loaded) == (0, True)


def test_other_data_in_the_schema_is_left_alone(loaded: Connect) -> None:
    with pytest.raises(UsageError, match="--dsql-scale tiny --dsql-seed 1"):
        Orders("quick").load(loaded, dialect="postgresql")
    with pytest.raises(UsageError, match="--dsql-scale tiny --dsql-seed 1"):
        Orders("tiny", seed=2).load(loaded, dialect="postgresql")
    assert Orders("tiny").load(loaded, dialect="postgresql").already_loaded


def test_progress_grows_to_the_whole_and_names_its_steps(connect: Connect) -> None:
    seen: list[LoadProgress] = []
    callers = set()

    def progress(one: LoadProgress) -> None:
        seen.append(one)
        callers.add(threading.current_thread())

    Orders(SCALE).load(connect, dialect="postgresql", progress=progress)
    rows = [one.rows for one in seen]
    assert rows == sorted(rows)
    assert rows[-1] == seen[-1].total_rows == SCALE.total_rows
    assert list(dict.fromkeys(one.step for one in seen)) == ["rows", "indexes", "checks"]
    assert callers == {threading.current_thread()}


def test_no_transaction_exceeds_the_limits_of_dsql(connect: Connect) -> None:
    orders = Orders(SCALE)
    orders.load(connect, dialect="postgresql")
    orders.begin_cell(connect, cell="c", slots=1, requests_hint=12_000)
    tables = [*SCALE.rows, "load_chunks"]
    union = " UNION ALL ".join(
        f"SELECT xmin::text AS tx, pg_column_size(t) AS size FROM {SCHEMA}.{t} t" for t in tables
    )
    with connect() as connection:
        rows, size = connection.execute(
            f"SELECT max(rows), max(size) FROM (SELECT count(*) AS rows, sum(size) AS size FROM ({union}) GROUP BY tx)"
        ).fetchone()  # type: ignore[misc]  # an aggregate always answers one row
    assert rows <= 3_000
    assert size < 1 << 20  # a tenth of 10 MiB: index entries come on top


def test_a_killed_load_is_completed_by_the_next(connect: Connect, server: PlainPostgres) -> None:
    script = """
import os, signal, sys, psycopg
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.workload import Orders
from tests.workloads.test_orders_loader import SCALE
write, calls = OrdersData.orders_text, []
def orders_text(self, rows):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, rows)
OrdersData.orders_text = orders_text
dsn = sys.stdin.read()
Orders(SCALE).load(lambda: psycopg.connect(dsn, autocommit=True), dialect="postgresql", workers=2)
"""
    killed = subprocess.run([sys.executable, "-c", script], input=server.dsn, text=True, timeout=300, check=False)
    assert killed.returncode == -9
    report = Orders(SCALE).load(connect, dialect="postgresql")
    assert 0 < report.rows < SCALE.total_rows
    _assert_exact(connect, SCALE)


def test_connections_cut_in_the_middle_are_replaced(connect: Connect) -> None:
    cut: list[object] = []

    def cut_once(_: LoadProgress) -> None:
        if not cut:
            with connect() as killer:
                cut.append(
                    killer.execute(
                        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                        "WHERE pid <> pg_backend_pid() AND query LIKE 'COPY%' AND datname = current_database()"
                    ).fetchone()
                )

    report = Orders(SCALE).load(connect, dialect="postgresql", progress=cut_once)
    assert report.rows == SCALE.total_rows
    _assert_exact(connect, SCALE)


@pytest.mark.parametrize(
    ("message", "sqlstate"),
    [
        ("change conflicts with another transaction (OC000)", "40001"),
        ("schema has been updated by another transaction (OC001)", "40001"),
        ("server unavailable", "XX000"),
    ],
)
@pytest.mark.parametrize("deferred", [False, True], ids=["at the statement", "at COMMIT"])
def test_conflicts_and_outages_are_survived(connect: Connect, message: str, sqlstate: str, deferred: bool) -> None:
    _prepare(connect, *_failing_once("load_chunks", message, sqlstate, deferred=deferred))
    report = Orders(SCALE).load(connect, dialect="postgresql", workers=1)
    assert report.retries == 1
    _assert_exact(connect, SCALE)


def test_a_fault_that_repeating_cannot_cure_is_one_clear_line(connect: Connect) -> None:
    message = "Current cluster size exceeds cluster size limit."
    _prepare(connect, *_failing_once("load_chunks", message, "53100", deferred=False))
    with pytest.raises(DataLoadFailed, match=f"loading into schema {SCHEMA} failed: {message}"):
        Orders(SCALE).load(connect, dialect="postgresql")
    assert not _loader_threads()
    Orders(SCALE).load(connect, dialect="postgresql")
    _assert_exact(connect, SCALE)


def test_an_interrupt_leaves_no_thread_and_no_half_chunk(connect: Connect) -> None:
    def interrupt(_: LoadProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Orders(SCALE).load(connect, dialect="postgresql", progress=interrupt)
    assert not _loader_threads()
    Orders(SCALE).load(connect, dialect="postgresql")
    _assert_exact(connect, SCALE)


def test_two_loads_at_once_load_everything_once(connect: Connect) -> None:
    with ThreadPoolExecutor(2) as threads:
        loads = [threads.submit(Orders(SCALE).load, connect, dialect="postgresql", workers=2) for _ in range(2)]
        for one in loads:
            one.result()
    _assert_exact(connect, SCALE)


def test_a_chunk_that_is_there_counts_as_landed(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    data = OrdersData(SCALES["tiny"], 1)
    for _ in range(2):
        rows, _retries = land(connect, data, reserve_chunks(SCALES["tiny"], 1_200), workers=2)
        assert rows == 2 * 2_700
    with connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM {SCHEMA}.orders").fetchone() == (400 + 2 * 600,)


def test_rows_that_were_removed_behind_our_back_are_noticed(connect: Connect) -> None:
    _prepare(connect, f"INSERT INTO {SCHEMA}.load_chunks VALUES ('orders', 0, 2700)")
    with pytest.raises(DataLoadFailed, match="orders 1000 of 1600, order_items 2500 of 4000, ledger 1000 of 1600"):
        Orders(SCALE).load(connect, dialect="postgresql")


def test_rows_of_somebody_else_under_our_keys_are_one_clear_line(connect: Connect) -> None:
    _prepare(connect, f"INSERT INTO {SCHEMA}.tenants VALUES (1, 'somebody')")
    with pytest.raises(DataLoadFailed, match="duplicate key value"):
        Orders(SCALE).load(connect, dialect="postgresql")


def test_an_index_that_is_there_is_not_built_again(connect: Connect) -> None:
    _prepare(connect, f"CREATE INDEX orders_customer_created ON {SCHEMA}.orders (customer, created)")
    Orders(SCALE).load(connect, dialect="postgresql")
    with connect() as connection:
        assert _indexes(connection) == {"orders_customer_created", "ledger_order"}


def _indexes(connection: psycopg.Connection[Any]) -> set[str]:
    query = "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND indexname !~ '_(p?key)$'"
    return {name for (name,) in connection.execute(query, (SCHEMA,))}


def _loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("orders-loader")]


def test_an_interrupt_does_not_wait_for_a_silent_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 0.05)
    answers = threading.Event()

    def connect() -> psycopg.Connection[Any]:
        answers.wait(20)
        raise UsageError("nobody waits for this answer any more")

    def interrupt(_rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        land(connect, OrdersData(SCALE, 1), reserve_chunks(SCALE, SCALE.orders + 1), workers=1, report=interrupt)
    crew = [thread for thread in threading.enumerate() if thread.name.startswith("orders-loader")]
    assert crew, "it waited until the database answered"
    answers.set()
    crew[0].join(20)
