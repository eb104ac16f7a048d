"""The order schema on PostgreSQL: its keys, checks and references, and nothing outside of it."""

from __future__ import annotations

import psycopg
import pytest

from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.schema import INDEXES, SCHEMA, TABLES
from pytest_dsql.workloads.orders.workload import Orders


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE {s}.products SET price = 0 WHERE id = 1", psycopg.errors.CheckViolation),
        ("UPDATE {s}.inventory SET quantity = -1 WHERE product = 1", psycopg.errors.CheckViolation),
        ("UPDATE {s}.orders SET status = 'lost' WHERE id = 1", psycopg.errors.CheckViolation),
        ("UPDATE {s}.order_items SET quantity = 0", psycopg.errors.CheckViolation),
        ("UPDATE {s}.ledger SET kind = 'gift' WHERE id = 1", psycopg.errors.CheckViolation),
        ("UPDATE {s}.customers SET email = 'customer2@example.com' WHERE id = 1", psycopg.errors.UniqueViolation),
        ("UPDATE {s}.products SET sku = 'SKU-00000002' WHERE id = 1", psycopg.errors.UniqueViolation),
        ("UPDATE {s}.order_items SET line = 1", psycopg.errors.UniqueViolation),
        ("INSERT INTO {s}.operation_receipts VALUES ('a', 'k', 1, now()), ('a', 'k', 2, now())",
         psycopg.errors.UniqueViolation),
        ("UPDATE {s}.customers SET tenant = 99 WHERE id = 1", psycopg.errors.ForeignKeyViolation),
        ("UPDATE {s}.products SET tenant = 99 WHERE id = 1", psycopg.errors.ForeignKeyViolation),
        ("UPDATE {s}.orders SET customer = 999 WHERE id = 1", psycopg.errors.ForeignKeyViolation),
        ("UPDATE {s}.order_items SET product = 999", psycopg.errors.ForeignKeyViolation),
        ('UPDATE {s}.ledger SET "order" = 999999 WHERE id = 1', psycopg.errors.ForeignKeyViolation),
        ("DELETE FROM {s}.orders WHERE id = 1", psycopg.errors.ForeignKeyViolation),
        ("INSERT INTO {s}.inventory VALUES (999, 1, 1)", psycopg.errors.ForeignKeyViolation),
    ],
)  # fmt: skip
def test_keys_checks_and_references_hold(loaded: Connect, statement: str, error: type[psycopg.Error]) -> None:
    with loaded() as connection, pytest.raises(error):
        connection.execute(statement.format(s=SCHEMA))


def test_secondary_indexes_are_valid_after_a_load(loaded: Connect) -> None:
    with loaded() as connection:
        valid = connection.execute(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid"
        ).fetchall()
    assert {name for (name,) in valid} >= set(INDEXES)


def test_tables_of_the_same_names_in_public_are_never_touched(connect: Connect) -> None:
    names = [*TABLES, "identity"]
    with connect() as connection:
        for name in names:
            connection.execute(f"CREATE TABLE public.{name} (mine text)")
            connection.execute(f"INSERT INTO public.{name} VALUES ('mine')")
        orders = Orders("tiny")
        orders.load(connect, dialect="postgresql")
        orders.begin_cell(connect, cell="c", slots=1, requests_hint=10_000)
        orders.remove(connect)
        for name in names:
            assert connection.execute(f"SELECT * FROM public.{name}").fetchall() == [("mine",)]


def test_remove_drops_the_schema_and_says_so_once(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    assert orders.remove(connect) is True
    assert orders.remove(connect) is False
    with connect() as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is None
