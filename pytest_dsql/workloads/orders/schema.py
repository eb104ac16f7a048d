"""The tables and indexes of the order workload, in a schema of its own."""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "pytest_dsql_orders"

#: Raised whenever tables or rows change meaning: a schema of another version is refused, not guessed at.
VERSION: Final = 1

#: Table -> CREATE TABLE, parents first. Foreign keys are declared here, since DSQL takes no other form that is checked
#: at once (AWS user guide, "ALTER TABLE": ADD CONSTRAINT ... FOREIGN KEY needs NOT VALID).
TABLES: Final = {
    "tenants": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.tenants (
            id bigint PRIMARY KEY,
            name text NOT NULL
        )""",
    "customers": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.customers (
            id bigint PRIMARY KEY,
            tenant bigint NOT NULL REFERENCES {SCHEMA}.tenants (id),
            email text NOT NULL UNIQUE,
            name text NOT NULL,
            created timestamptz NOT NULL
        )""",
    "products": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.products (
            id bigint PRIMARY KEY,
            tenant bigint NOT NULL REFERENCES {SCHEMA}.tenants (id),
            sku text NOT NULL UNIQUE,
            name text NOT NULL,
            description text NOT NULL,
            price bigint NOT NULL CHECK (price > 0)
        )""",
    "inventory": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.inventory (
            product bigint PRIMARY KEY REFERENCES {SCHEMA}.products (id),
            quantity integer NOT NULL CHECK (quantity >= 0),
            base_quantity integer NOT NULL
        )""",
    "orders": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.orders (
            id bigint PRIMARY KEY,
            customer bigint NOT NULL REFERENCES {SCHEMA}.customers (id),
            status text NOT NULL CHECK (status IN ('placed', 'cancelled')),
            total bigint NOT NULL,
            created timestamptz NOT NULL
        )""",
    "order_items": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.order_items (
            "order" bigint NOT NULL REFERENCES {SCHEMA}.orders (id),
            line integer NOT NULL,
            product bigint NOT NULL REFERENCES {SCHEMA}.products (id),
            quantity integer NOT NULL CHECK (quantity > 0),
            price bigint NOT NULL,
            PRIMARY KEY ("order", line)
        )""",
    "ledger": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.ledger (
            id bigint PRIMARY KEY,
            "order" bigint NOT NULL REFERENCES {SCHEMA}.orders (id),
            kind text NOT NULL CHECK (kind IN ('charge', 'refund')),
            amount bigint NOT NULL,
            created timestamptz NOT NULL
        )""",
    "operation_receipts": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.operation_receipts (
            operation_id text PRIMARY KEY,
            kind text NOT NULL,
            reference_id bigint NOT NULL,
            created timestamptz NOT NULL
        )""",
    # Which chunks of the data have landed: a row is written in the same transaction as the chunk.
    "load_chunks": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.load_chunks (
            part text NOT NULL,
            chunk bigint NOT NULL,
            rows bigint NOT NULL,
            PRIMARY KEY (part, chunk)
        )""",
    # Runs of cells: their numbers, and the set-aside orders that each got (from reserved_from to before reserved_to).
    "cell_runs": f"""
        CREATE TABLE IF NOT EXISTS {SCHEMA}.cell_runs (
            number bigint PRIMARY KEY,
            cell text NOT NULL,
            reserved_from bigint NOT NULL,
            reserved_to bigint NOT NULL,
            created timestamptz NOT NULL
        )""",
}

#: Index -> (table, columns): built after the load.
INDEXES: Final = {
    "orders_customer_created": ("orders", "customer, created"),
    # Without it, deleting orders scans the ledger.
    "ledger_order": ("ledger", '"order"'),
}
