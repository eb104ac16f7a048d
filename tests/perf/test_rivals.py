"""An order of six statements by the driver, by psycopg in threads and tasks, and under Locust: work per CPU-second.

One server over TLS, medians of five interleaved runs. Locust comes with the extra `perf`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival, Outcome
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, transaction
from tests.perf.rivals import PROGRAMS, Run, run_program, shown
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation

ROWS = 100_000
CONNECTIONS = 16
RUNS = 5
SECONDS = 3.0

#: SQL with %s, and what fills it. What is written is a transaction's own, so that nobody waits for a lock.
STATEMENTS = (
    ("BEGIN ISOLATION LEVEL REPEATABLE READ", ()),
    ("SELECT name, price FROM products WHERE id = %s", ("first",)),
    ("SELECT name, price FROM products WHERE id = %s", ("second",)),
    ("INSERT INTO lines (id, product) VALUES (%s, %s)", ("id", "first")),
    ("INSERT INTO orders (id, product, other) VALUES (%s, %s, %s)", ("id", "first", "second")),
    ("UPDATE orders SET other = other + 1 WHERE id = %s", ("id",)),
    ("INSERT INTO receipts (operation_id) VALUES (%s)", ("operation",)),
    ("COMMIT", ()),
)


@transaction(kind="write")
def order(ctx: Context) -> Steps:
    first, second, number = ctx.rng.randrange(ROWS) + 1, ctx.rng.randrange(ROWS) + 1, ctx.new_id()
    yield "SELECT name, price FROM products WHERE id = $1", (first,)
    yield "SELECT name, price FROM products WHERE id = $1", (second,)
    yield "INSERT INTO lines (id, product) VALUES ($1, $2)", (number, first)
    yield "INSERT INTO orders (id, product, other) VALUES ($1, $2, $3)", (number, first, second)
    yield "UPDATE orders SET other = other + 1 WHERE id = $1", (number,)
    yield "INSERT INTO receipts (operation_id) VALUES ($1)", (ctx.operation_id,)
    return None


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    if tls_installation() is None or shutil.which("pgbench") is None:
        pytest.skip("needs a PostgreSQL with TLS installed on this machine")
    with plain_postgres(tls=True, settings={"max_connections": "100"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL, price int NOT NULL)")
            connection.execute(
                f"INSERT INTO products SELECT g, 'product ' || g, g * 3 FROM generate_series(1, {ROWS}) g"
            )
            connection.execute("CREATE TABLE lines (id bigint PRIMARY KEY, product int NOT NULL)")
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, product int NOT NULL, other int NOT NULL)")
            connection.execute("CREATE TABLE receipts (operation_id text PRIMARY KEY)")
            connection.execute("VACUUM ANALYZE")
        yield running


def run_driver(server: PlainPostgres, number: int) -> Run:
    plan = CellPlan(
        id="perf",
        endpoint=Endpoint.from_dsn(server.dsn).resolved(),
        mix=Mix({order: 1}),
        scale=None,
        run=CellRun(number=number, operation_prefix=f"perf{number}-", slots=CONNECTIONS),
        arrival=Arrival("closed"),
        connections=CONNECTIONS,
        workers=1,
        warmup_s=0.5,
        window_s=SECONDS,
        seed=number,
    )
    measured = run_cell(plan)
    (samples,) = measured.samples.values()
    assert samples.count(Outcome.OK, Outcome.CANCELLED) == len(samples), measured
    requests = measured.arrivals
    return Run(requests / measured.duration_s, measured.generator.cpu * measured.duration_s * 1e6 / requests)


@pytest.fixture(scope="module")
def medians(server: PlainPostgres) -> dict[str, Run]:
    names = [name for name in PROGRAMS if name != "locust" or find_spec("locust") is not None]
    runs: dict[str, list[Run]] = {name: [] for name in ("driver", *names)}
    for number in range(1, RUNS + 1):
        runs["driver"].append(run_driver(server, number))
        for name in names:
            runs[name].append(
                run_program(
                    name,
                    server,
                    STATEMENTS,
                    rows=ROWS,
                    connections=CONNECTIONS,
                    seconds=SECONDS,
                    seed=f"{name} {number}",
                )
            )
    return shown(runs, "transactions")


@pytest.mark.parametrize(("rival", "times"), [("threads", 2), ("async", 2), ("locust", 5)])
def test_the_driver_does_so_many_times_the_transactions_per_cpu_second(
    medians: dict[str, Run], rival: str, times: float
) -> None:
    if rival not in medians:
        pytest.skip("needs Locust: pip install 'pytest-dsql[perf]'")
    assert medians[rival].cpu_us >= times * medians["driver"].cpu_us
