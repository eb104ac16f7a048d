"""The published order mix, by the driver and by pgbench: one server over TLS, the same statements, interleaved runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.transaction import Tally
from pytest_dsql.workloads.orders import transactions as orders_sql
from pytest_dsql.workloads.orders.workload import Orders
from tests.perf.rivals import Run, run_pgbench, shown
from tests.plain_postgres import PlainPostgres, plain_postgres, tls_installation

CONNECTIONS = 16
RUNS = 5
SECONDS = 4.0
#: Of the orders that are set aside, the last so many are pgbench's; the driver claims its own from the first.
CANCELLED_BY_PGBENCH = 20_000

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ;\n"


def with_variables(sql: str, *names: str) -> str:
    """Put pgbench's variables in place of $1, $2, ..., on one line."""
    for number in range(len(names), 0, -1):
        sql = sql.replace(f"${number}", f":{names[number - 1]}")
    return " ".join(sql.split())


def scripts(orders: Orders) -> dict[str, str]:
    """The four transactions as pgbench takes them. It can't loop over rows, so a cancel gets its lines side by side."""
    scale = orders.scale
    third = scale.products // 3
    receipt = with_variables(orders_sql.RECEIPT, "id::bigint::text")
    take = [with_variables(orders_sql.TAKE_STOCK, f"p{n}", f"u{n}") + f" \\aset t{n}_\n" for n in (1, 2, 3)]
    lines = {
        count: with_variables(
            orders_sql.INSERT_LINES[count],
            "id",
            *(name for n in range(1, count + 1) for name in (f"p{n}", f"u{n}", f"t{n}_price")),
        )
        + ";\n"
        for count in (1, 2, 3)
    }
    create = (
        f"\\set id random(1000000000000000, 9000000000000000000)\n\\set customer random(0, {scale.customers - 1})\n"
        "\\set charge :id + 1\n"
        "\\set lines random(1, 3)\n"
        + "".join(
            f"\\set p{n} random({(n - 1) * third}, {n * third - 1})\n\\set u{n} random(1, 2)\n\\set t{n}_price 1\n"
            for n in (1, 2, 3)
        )
        + BEGIN
        + f"{receipt};\n"
        + take[0]
        + f"\\if :lines > 1\n{take[1]}\\endif\n\\if :lines > 2\n{take[2]}\\endif\n"
        + "\\set total :t1_price * :u1 + :t2_price * :u2 + :t3_price * :u3\n"
        + with_variables(orders_sql.INSERT_ORDER, "id", "customer", "total")
        + ";\n"
        + f"\\if :lines = 1\n{lines[1]}\\elif :lines = 2\n{lines[2]}\\else\n{lines[3]}\\endif\n"
        + with_variables(orders_sql.INSERT_CHARGE, "charge", "id", "total")
        + ";\n"
        + with_variables(orders_sql.INSERT_RECEIPT, "id::bigint::text", "kind", "id").replace(":kind", "'order_create'")
        + ";\nCOMMIT;\n"
    )
    units = with_variables(orders_sql.UNITS_OF_ORDER, "order")
    side_by_side = ", ".join(
        f"(array_agg(product))[{n}] AS p{n}, (array_agg(units))[{n}] AS u{n}" for n in (1, 2, 3, 4)
    )
    give_back = "".join(
        f"\\if :l_lines >= {n}\n{with_variables(orders_sql.RETURN_STOCK, f'l_p{n}', f'l_u{n}')};\n\\endif\n"
        for n in (1, 2, 3, 4)
    )
    cancel = (
        f"\\set id random(1000000000000000, 9000000000000000000)\n"
        f"\\set order random({scale.orders - CANCELLED_BY_PGBENCH}, {scale.orders - 1})\n\\set c_total -1\n"
        + BEGIN
        + f"{receipt};\n"
        + with_variables(orders_sql.CANCEL_ORDER, "order")
        + " \\aset c_\n\\if :c_total >= 0\n"
        + f"SELECT count(*) AS lines, {side_by_side} FROM ({units}) AS units \\gset l_\n"
        + give_back
        + with_variables(orders_sql.INSERT_REFUND, "id", "order", "c_total")
        + ";\n"
        + with_variables(orders_sql.INSERT_RECEIPT, "id::bigint::text", "kind", "order").replace(
            ":kind", "'order_cancel'"
        )
        + ";\nCOMMIT;\n\\else\nROLLBACK;\n\\endif\n"
    )
    return {
        "product_read": f"\\set id random(0, {scale.products - 1})\n{BEGIN}"
        f"{with_variables(orders_sql.PRODUCT_WITH_STOCK, 'id')};\nCOMMIT;\n",
        "order_history": f"\\set id random(0, {scale.customers - 1})\n{BEGIN}"
        f"{with_variables(orders_sql.NEWEST_ORDERS, 'id')};\nCOMMIT;\n",
        "order_create": create,
        "order_cancel": cancel,
    }


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    if tls_installation() is None or shutil.which("pgbench") is None:
        pytest.skip("needs a PostgreSQL with TLS, and its pgbench, installed on this machine")
    with plain_postgres(tls=True, settings={"max_connections": "100"}) as running:
        yield running


def run_driver(server: PlainPostgres, orders: Orders) -> Run:
    def connect() -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(server.dsn, autocommit=True)

    cell = orders.begin_cell(connect, cell="perf", slots=CONNECTIONS, requests_hint=int(8_000 * SECONDS))
    plan = CellPlan(
        id="perf",
        endpoint=Endpoint.from_dsn(server.dsn).resolved(),
        mix=orders.mix,
        scale=orders.scale,
        run=cell,
        arrival=Arrival("closed"),
        connections=CONNECTIONS,
        workers=1,
        warmup_s=0.5,
        window_s=SECONDS,
        seed=cell.number,
    )
    measured = run_cell(plan)
    violations = orders.check_cell(connect, cell, Tally(measured.committed, measured.ambiguous))
    assert not any(violations.values()), violations
    requests = measured.arrivals
    return Run(requests / measured.duration_s, measured.generator.cpu * measured.duration_s * 1e6 / requests)


def test_the_order_mix_beside_pgbench(server: PlainPostgres, tmp_path: Path) -> None:
    orders = Orders("quick")
    orders.load(lambda: psycopg.connect(server.dsn, autocommit=True), dialect="postgresql")
    weights = {name: round(100 * share) for name, share in orders.mix.weights.items()}
    files = {}
    for name, text in scripts(orders).items():
        script = tmp_path / f"{name}.sql"
        script.write_text(text)
        files[script] = weights[name]
    runs: dict[str, list[Run]] = {"driver": [], "pgbench": []}
    for _ in range(RUNS):
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                "UPDATE pytest_dsql_orders.orders SET status = 'placed' WHERE id BETWEEN %s AND %s",
                (orders.scale.orders - CANCELLED_BY_PGBENCH, orders.scale.orders - 1),
            )
            connection.execute("VACUUM pytest_dsql_orders.orders")
        runs["pgbench"].append(run_pgbench(server, files, CONNECTIONS, SECONDS))
        runs["driver"].append(run_driver(server, orders))
    result = shown(runs, "transactions")
    ours, theirs = result["driver"], result["pgbench"]
    assert ours.rate >= 0.9 * theirs.rate
    assert theirs.cpu_us / ours.cpu_us >= 0.65
