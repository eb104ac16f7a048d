"""The driver against pgbench and against psycopg in threads: one server over TLS, the same statement, interleaved runs.

Each figure is the median of five runs. `pytest tests/perf/test_driver.py -s` shows them; on a busy machine they wobble.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, Transaction, transaction
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation

ROWS = 100_000
CONNECTIONS = 16
RUNS = 5
SECONDS = 3

SQL = "SELECT name, price FROM products WHERE id = "


@transaction(kind="read", block=False)
def product(ctx: Context) -> Steps:
    yield "SELECT name, price FROM products WHERE id = $1", (ctx.rng.randrange(ROWS) + 1,)
    return None


@transaction(kind="write")
def order(ctx: Context) -> Steps:
    first, second = ctx.rng.randrange(ROWS) + 1, ctx.rng.randrange(ROWS) + 1
    yield "SELECT name, price FROM products WHERE id = $1", (first,)
    yield "SELECT name, price FROM products WHERE id = $1", (second,)
    yield "UPDATE stock SET quantity = quantity - 1 WHERE product = $1", (first,)
    yield "UPDATE stock SET quantity = quantity - 1 WHERE product = $1", (second,)
    yield "INSERT INTO orders (id, product, other) VALUES ($1, $2, $3)", (ctx.new_id(), first, second)
    yield "INSERT INTO receipts (operation_id) VALUES ($1)", (ctx.operation_id,)
    return None


ORDER_SCRIPT = f"""\\set first random(1, {ROWS})
\\set second random(1, {ROWS})
\\set id random(1, 9000000000000000000)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT name, price FROM products WHERE id = :first;
SELECT name, price FROM products WHERE id = :second;
UPDATE stock SET quantity = quantity - 1 WHERE product = :first;
UPDATE stock SET quantity = quantity - 1 WHERE product = :second;
INSERT INTO orders (id, product, other) VALUES (:id, :first, :second);
INSERT INTO receipts (operation_id) VALUES (:id::bigint::text);
COMMIT;
"""


@dataclass(frozen=True)
class Run:
    """What one run did: requests per second, and client CPU time per request."""

    rate: float
    cpu_us: float


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    if tls_installation() is None or shutil.which("pgbench") is None:
        pytest.skip("needs a PostgreSQL with TLS, and its pgbench, installed on this machine")
    with plain_postgres(tls=True, settings={"max_connections": "100"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL, price int NOT NULL)")
            connection.execute(
                f"INSERT INTO products SELECT g, 'product ' || g, g * 3 FROM generate_series(1, {ROWS}) g"
            )
            connection.execute("CREATE TABLE stock (product int PRIMARY KEY, quantity bigint NOT NULL)")
            connection.execute(f"INSERT INTO stock SELECT g, 1000 FROM generate_series(1, {ROWS}) g")
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, product int NOT NULL, other int NOT NULL)")
            connection.execute("CREATE TABLE receipts (operation_id text PRIMARY KEY)")
            connection.execute("VACUUM ANALYZE")
        yield running


def run_driver(server: PlainPostgres, measured_one: Transaction = product, number: int = 1) -> Run:
    endpoint = Endpoint(
        host=server.host,
        hostaddr="127.0.0.1",
        port=server.port,
        user=server.user,
        dbname=server.dbname,
        sslmode="verify-full",
        sslrootcert=server.sslrootcert,
        auth=PasswordAuth(server.password),
        dialect="postgresql",
    )
    plan = CellPlan(
        id="perf",
        endpoint=endpoint,
        mix=Mix({measured_one: 1}),
        scale=None,
        run=CellRun(number=number, operation_prefix=f"perf{number}-", slots=CONNECTIONS),
        arrival=Arrival("closed"),
        connections=CONNECTIONS,
        workers=1,
        warmup_s=0.3,
        window_s=SECONDS,
        seed=1,
    )
    measured = run_cell(plan)
    requests = measured.arrivals
    return Run(requests / measured.duration_s, measured.generator.cpu * measured.duration_s * 1e6 / requests)


def run_pgbench(server: PlainPostgres, script: Path) -> Run:
    """pgbench's rate is its own figure; what its connections cost is measured apart and taken off."""
    _, connecting_s = _pgbench(server, script, "-t", "1")
    output, cpu_s = _pgbench(server, script, "-T", str(SECONDS))
    done = next(int(line.rpartition(" ")[2]) for line in output.splitlines() if "actually processed" in line)
    rate = next(float(line.split()[2]) for line in output.splitlines() if line.startswith("tps"))
    return Run(rate, (cpu_s - connecting_s) * 1e6 / done)


def _pgbench(server: PlainPostgres, script: Path, *amount: str) -> tuple[str, float]:
    environment = os.environ | {
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": server.user,
        "PGPASSWORD": server.password,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": str(server.sslrootcert),
    }
    process = subprocess.Popen(
        [
            "pgbench",
            "-n",
            "-M",
            "prepared",
            "-c",
            str(CONNECTIONS),
            "-j",
            "1",
            "-f",
            str(script),
            *amount,
            server.dbname,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, output
    return output, usage.ru_utime + usage.ru_stime


_THREADS = """
import json, random, sys, threading, time
import psycopg
given = json.load(sys.stdin)
connections = [psycopg.connect(given["dsn"], autocommit=True) for _ in range(given["connections"])]
counts = [0] * len(connections)
stop = False
def work(number):
    connection, rng = connections[number], random.Random(number)
    while not stop:
        connection.execute(given["sql"] + "%s", (rng.randrange(given["rows"]) + 1,), prepare=True)
        counts[number] += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(len(connections))]
for thread in threads: thread.start()
time.sleep(0.3)
begun, cpu, before = time.perf_counter(), time.process_time(), sum(counts)
time.sleep(given["seconds"])
done, cpu, spent = sum(counts) - before, time.process_time() - cpu, time.perf_counter() - begun
stop = True
for thread in threads: thread.join()
print(json.dumps({"rate": done / spent, "cpu_us": cpu * 1e6 / done}))
"""


def run_threads(server: PlainPostgres) -> Run:
    given = {"dsn": server.dsn, "connections": CONNECTIONS, "rows": ROWS, "sql": SQL, "seconds": SECONDS}
    process = subprocess.run(
        [sys.executable, "-c", _THREADS], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return Run(**json.loads(process.stdout))


@pytest.fixture(scope="module")
def medians(server: PlainPostgres, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    script = tmp_path_factory.mktemp("pgbench") / "product.sql"
    script.write_text(f"\\set id random(1, {ROWS})\n{SQL}:id;\n")
    runs: dict[str, list[Run]] = {"driver": [], "pgbench": [], "threads": []}
    for _ in range(RUNS):
        runs["pgbench"].append(run_pgbench(server, script))
        runs["driver"].append(run_driver(server))
        runs["threads"].append(run_threads(server))
    return shown(runs, "statements")


def shown(runs: dict[str, list[Run]], what: str) -> dict[str, Run]:
    """Print and return the medians."""
    result = {
        name: Run(median(one.rate for one in several), median(one.cpu_us for one in several))
        for name, several in runs.items()
    }
    for name, run in result.items():
        print(f"\n{name:8} {run.rate:9.0f} {what}/s  {run.cpu_us:6.1f} us of client CPU each", end="")
    rate = result["driver"].rate / result["pgbench"].rate
    cpu = result["driver"].cpu_us / result["pgbench"].cpu_us
    print(f"\nthe driver has {rate:.2f} of pgbench's rate, for {cpu:.2f} times its CPU")
    return result


def test_the_driver_reaches_nine_tenths_of_pgbenchs_rate(medians: dict[str, Run]) -> None:
    assert medians["driver"].rate >= 0.9 * medians["pgbench"].rate


def test_the_driver_costs_at_most_one_and_a_half_times_pgbenchs_cpu(medians: dict[str, Run]) -> None:
    assert medians["driver"].cpu_us <= 1.5 * medians["pgbench"].cpu_us


def test_the_driver_does_twice_the_statements_of_threads_per_cpu_second(medians: dict[str, Run]) -> None:
    assert medians["threads"].cpu_us >= 2 * medians["driver"].cpu_us


def test_a_transaction_of_six_statements_is_not_far_from_pgbench(
    server: PlainPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # What workloads mostly run, begun and committed: eight round trips, whose parameters and checks are Python.
    script = tmp_path_factory.mktemp("pgbench") / "order.sql"
    script.write_text(ORDER_SCRIPT)
    runs: dict[str, list[Run]] = {"driver": [], "pgbench": []}
    for number in range(RUNS):
        runs["pgbench"].append(run_pgbench(server, script))
        runs["driver"].append(run_driver(server, order, number + 1))
    result = shown(runs, "transactions")
    assert result["driver"].rate >= 0.5 * result["pgbench"].rate
