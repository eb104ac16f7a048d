"""The loader against one plain COPY per table of ready-made rows, both into one PostgreSQL of the embedded engine.

`pytest tests/perf/test_loader.py -s`. The loader goes through the gateway with TLS, makes its rows, lands them in
chunks that respect DSQL's limits, builds the indexes and checks the counts; all of that is in its time. The plain COPY
goes to PostgreSQL's own socket, into the same tables with the same foreign keys. Runs alternate; medians decide.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator

import psycopg
import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.local.client import Engine
from pytest_dsql.local.postgres import SOCKET_NAME, SUPERUSER
from pytest_dsql.workloads.loading import LoadProgress
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.scales import SCALES
from pytest_dsql.workloads.orders.schema import SCHEMA, TABLES
from pytest_dsql.workloads.orders.workload import Orders

RUNS = 5
SCALE = SCALES["quick"]
_BLOCK = 1 << 17


@pytest.fixture
def engine() -> Iterator[Engine]:
    running = Engine.start_or_attach()
    yield running
    running.close()


def _through_the_gateway(engine: Engine) -> Connect:
    keys = engine.credentials
    endpoint = Endpoint(
        host=engine.cluster.host,
        hostaddr="127.0.0.1",
        port=engine.port,
        region=engine.cluster.region,
        sslrootcert=str(engine.ca_file),
        auth=IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key),
    )
    tokens = TokenSource(endpoint)
    return lambda: dial(endpoint, tokens)[0]


def _straight_to_postgresql(engine: Engine) -> Connect:
    (socket,) = engine.control.parent.glob(f"**/{SOCKET_NAME}")
    dsn = f"host={socket.parent} user={SUPERUSER} dbname=postgres"
    return lambda: psycopg.connect(dsn, autocommit=True)


def _plain_copy(connect: Connect, texts: dict[str, bytes]) -> float:
    with connect() as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        for statement in TABLES.values():
            connection.execute(statement)
        started = time.perf_counter()
        for table, text in texts.items():
            with connection.cursor().copy(f"COPY {SCHEMA}.{table} FROM STDIN") as copy:
                for at in range(0, len(text), _BLOCK):
                    copy.write(text[at : at + _BLOCK])
        took = time.perf_counter() - started
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        connection.execute("CHECKPOINT")
    return took


def _load(connect: Connect, straight: Connect) -> tuple[float, float]:
    """Load and return (seconds in all, seconds until the last row had landed)."""
    orders = Orders(SCALE)
    steps: dict[str, float] = {}

    def progress(one: LoadProgress) -> None:
        steps.setdefault(one.step, one.elapsed_s)

    report = orders.load(connect, dialect="dsql", progress=progress)
    assert report.rows == SCALE.total_rows
    orders.remove(connect)
    with straight() as connection:
        connection.execute("CHECKPOINT")
    return report.elapsed_s, steps["indexes"]


def _ready_made_rows() -> dict[str, bytes]:
    data = OrdersData(SCALE, 1)
    orders, items, ledger = data.orders_text(range(SCALE.orders))
    products, inventory = data.products_text(range(SCALE.products))
    return {
        "tenants": data.tenants_text(range(SCALE.tenants)),
        "customers": data.customers_text(range(SCALE.customers)),
        "products": products,
        "inventory": inventory,
        "orders": orders,
        "order_items": items,
        "ledger": ledger,
    }


def test_loader_keeps_up_with_plain_copy(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    gateway, straight = _through_the_gateway(engine), _straight_to_postgresql(engine)
    texts = _ready_made_rows()
    plain, loaded, rows_only = [], [], []
    for _ in range(RUNS):
        plain.append(_plain_copy(straight, texts))
        whole, rows = _load(gateway, straight)
        loaded.append(whole)
        rows_only.append(rows)
    rates = {
        "plain COPY": SCALE.total_rows / statistics.median(plain),
        "loader, rows": SCALE.total_rows / statistics.median(rows_only),
        "loader, all": SCALE.total_rows / statistics.median(loaded),
    }
    with capsys.disabled():
        for name, rate in rates.items():
            print(f"\n{name:<14} {rate:>9,.0f} rows/s", end="")
        print(f"\nloader / plain {rates['loader, all'] / rates['plain COPY']:.2f} (medians of {RUNS})")
    assert rates["loader, all"] >= 0.6 * rates["plain COPY"]


def test_rows_are_made_faster_than_a_database_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    data = OrdersData(SCALE, 1)
    data.orders_text(range(600))
    started = time.process_time()
    for first in range(0, 60_000, 600):
        data.orders_text(range(first, first + 600))
    rate = 60_000 * 4.5 / (time.process_time() - started)
    with capsys.disabled():
        print(f"\nrows made {rate:,.0f} /s")
    assert rate > 300_000


def test_making_rows_takes_constant_memory(capsys: pytest.CaptureFixture[str]) -> None:
    data = OrdersData(SCALES["full"], 1)
    data.orders_text(range(600))  # the price list of all products is made once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for first in range(0, 600_000, 600):
        data.orders_text(range(first, first + 600))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with capsys.disabled():
        print(f"\npeak memory grew by {grown} KiB over 2,700,000 rows")
    assert grown < 8 * 1024
