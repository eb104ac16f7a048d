"""The order workload on the embedded engine, as `dsql`: loaded, driven by the fast driver, and checked."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.local.client import Engine
from pytest_dsql.transaction import Tally
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.schema import INDEXES, SCHEMA
from pytest_dsql.workloads.orders.workload import Orders


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    engine = Engine.start_or_attach()
    try:
        keys = engine.credentials
        yield Endpoint(
            host=engine.cluster.host,
            hostaddr="127.0.0.1",
            port=engine.port,
            region=engine.cluster.region,
            sslrootcert=str(engine.ca_file),
            auth=IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key),
        )
    finally:
        engine.close()


@pytest.fixture(scope="module")
def connect_engine(endpoint: Endpoint) -> Connect:
    tokens = TokenSource(endpoint)
    return lambda: dial(endpoint, tokens)[0]


@pytest.fixture(scope="module")
def orders(connect_engine: Connect) -> Orders:
    orders = Orders("tiny")
    report = orders.load(connect_engine, dialect="dsql")
    assert report.rows == orders.scale.total_rows
    return orders


def test_indexes_are_valid(orders: Orders, connect_engine: Connect) -> None:
    with connect_engine() as connection:
        rows = connection.execute(
            "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s",
            (SCHEMA,),
        ).fetchall()
    assert {name for name, valid in rows if valid} >= set(INDEXES)


def test_a_loaded_schema_is_left_alone(orders: Orders, connect_engine: Connect) -> None:
    assert orders.load(connect_engine, dialect="dsql").already_loaded


def test_a_cell_of_the_published_mix_holds_every_invariant(
    orders: Orders, connect_engine: Connect, endpoint: Endpoint
) -> None:
    run = orders.begin_cell(connect_engine, cell="engine", slots=4, requests_hint=8_000)
    measurement = run_cell(
        CellPlan(
            id="engine",
            endpoint=endpoint,
            mix=orders.mix.without_workload(),
            scale=orders.scale,
            run=run,
            arrival=Arrival("closed"),
            connections=4,
            workers=1,
            warmup_s=0.1,
            window_s=1.0,
            seed=1,
        )
    )
    committed = measurement.committed
    assert set(committed) == {"product_read", "order_history", "order_create", "order_cancel"}
    violations = orders.check_cell(connect_engine, run, Tally(committed=committed, ambiguous=measurement.ambiguous))
    assert not any(violations.values()), violations
    with connect_engine() as connection:
        counted = connection.execute(
            f"SELECT kind, count(*) FROM {SCHEMA}.operation_receipts WHERE operation_id LIKE %s GROUP BY kind",
            (run.operation_prefix + "%",),
        ).fetchall()
    assert dict(counted) == {name: committed[name] for name in ("order_create", "order_cancel")}


def test_a_workload_is_removed_and_loaded_anew(connect_engine: Connect, orders: Orders) -> None:
    # The last test of this module: it takes away what the others share.
    assert orders.remove(connect_engine)
    with connect_engine() as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute(f"SELECT 1 FROM {SCHEMA}.orders")
    again = Orders("tiny", seed=2)
    assert again.load(connect_engine, dialect="dsql").rows == again.scale.total_rows
