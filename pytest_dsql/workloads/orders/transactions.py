"""The four transactions of the order workload: one statement per round trip, each text constant and prepared once.

The statements of a write are those of the published experiment (Aurora DSQL, Seoul, 2026-09): stock is taken line by
line, since each line may be refused, and the lines are then written by one statement. Stock rows are changed in the
order of their product, so that databases with row locks meet no deadlock.
"""

from __future__ import annotations

from typing import Final

from pytest_dsql.transaction import Context, Rejected, Steps, transaction
from pytest_dsql.workloads.orders.schema import SCHEMA

#: The longest order that `order_create` makes.
MAX_LINES: Final = 3
MAX_UNITS: Final = 2

PRODUCT_WITH_STOCK: Final = f"""
    SELECT p.sku, p.name, p.description, p.price, i.quantity
    FROM {SCHEMA}.products AS p JOIN {SCHEMA}.inventory AS i ON i.product = p.id
    WHERE p.id = $1"""

# The limit comes before the join: customers gather orders while cells run, and the twenty newest must not cost more
# for it.
NEWEST_ORDERS: Final = f"""
    SELECT o.id, o.status, o.total, o.created, count(*) AS lines, sum(i.quantity) AS units
    FROM (SELECT id, status, total, created FROM {SCHEMA}.orders
          WHERE customer = $1 ORDER BY created DESC, id DESC LIMIT 20) AS o
    JOIN {SCHEMA}.order_items AS i ON i."order" = o.id
    GROUP BY o.id, o.status, o.total, o.created
    ORDER BY o.created DESC, o.id DESC"""

RECEIPT: Final = f"SELECT 1 FROM {SCHEMA}.operation_receipts WHERE operation_id = $1"

INSERT_RECEIPT: Final = f"""
    INSERT INTO {SCHEMA}.operation_receipts (operation_id, kind, reference_id, created) VALUES ($1, $2, $3, now())"""

TAKE_STOCK: Final = f"""
    UPDATE {SCHEMA}.inventory AS i SET quantity = i.quantity - $2
    FROM {SCHEMA}.products AS p
    WHERE i.product = $1 AND p.id = i.product AND i.quantity >= $2
    RETURNING p.price"""

INSERT_ORDER: Final = f"""
    INSERT INTO {SCHEMA}.orders (id, customer, status, total, created) VALUES ($1, $2, 'placed', $3, now())"""


def _insert_lines(count: int) -> str:
    rows = ", ".join(f"($1, {n + 1}, ${3 * n + 2}, ${3 * n + 3}, ${3 * n + 4})" for n in range(count))
    return f'INSERT INTO {SCHEMA}.order_items ("order", line, product, quantity, price) VALUES {rows}'


#: Number of lines -> the statement that writes them: `$1` the order, then product, quantity and price of each line.
INSERT_LINES: Final = {count: _insert_lines(count) for count in range(1, MAX_LINES + 1)}

INSERT_CHARGE: Final = f"""
    INSERT INTO {SCHEMA}.ledger (id, "order", kind, amount, created) VALUES ($1, $2, 'charge', $3, now())"""

CANCEL_ORDER: Final = f"""
    UPDATE {SCHEMA}.orders SET status = 'cancelled' WHERE id = $1 AND status = 'placed' RETURNING total"""

UNITS_OF_ORDER: Final = f"""
    SELECT product, sum(quantity) AS units FROM {SCHEMA}.order_items WHERE "order" = $1
    GROUP BY product ORDER BY product"""

RETURN_STOCK: Final = f"UPDATE {SCHEMA}.inventory SET quantity = quantity + $2 WHERE product = $1"

INSERT_REFUND: Final = f"""
    INSERT INTO {SCHEMA}.ledger (id, "order", kind, amount, created) VALUES ($1, $2, 'refund', $3, now())"""


@transaction(kind="read")
def product_read(ctx: Context) -> Steps:
    """Read a product with its stock."""
    yield PRODUCT_WITH_STOCK, (ctx.pick(ctx.scale.products),)
    return None


@transaction(kind="read")
def order_history(ctx: Context) -> Steps:
    """Read a customer's 20 newest orders with their lines and units."""
    yield NEWEST_ORDERS, (ctx.pick(ctx.scale.customers),)
    return None


@transaction(kind="write")
def order_create(ctx: Context) -> Steps:
    """Take stock for one to three lines of one or two units, and place the order; rejected when stock is short."""
    customer, cart = draw_cart(ctx)
    receipt = yield RECEIPT, (ctx.operation_id,)
    if receipt.rowcount:
        return None  # an earlier attempt committed, although its answer was lost
    total = 0
    order = ctx.new_id()
    lines: list[int] = [order]
    for product, units in cart:
        taken = yield TAKE_STOCK, (product, units)
        row = taken.one()
        if row is None:
            return Rejected("out of stock")
        price = row[0]
        total += price * units
        lines += (product, units, price)
    yield INSERT_ORDER, (order, customer, total)
    yield INSERT_LINES[len(cart)], lines
    yield INSERT_CHARGE, (ctx.new_id(), order, total)
    yield INSERT_RECEIPT, (ctx.operation_id, "order_create", order)
    return None


@transaction(kind="write")
def order_cancel(ctx: Context) -> Steps:
    """Cancel an order that was set aside for it, return its stock and refund it; rejected when it is not placed."""
    order = ctx.draw("cancellable")
    if order is None:
        return Rejected("no set-aside order left in this cell")
    receipt = yield RECEIPT, (ctx.operation_id,)
    if receipt.rowcount:
        return None  # an earlier attempt committed, although its answer was lost
    cancelled = yield CANCEL_ORDER, (order,)
    row = cancelled.one()
    if row is None:
        return Rejected("order is not placed")
    units_of_order = yield UNITS_OF_ORDER, (order,)
    for product, units in units_of_order.rows:
        yield RETURN_STOCK, (product, units)
    yield INSERT_REFUND, (ctx.new_id(), order, row[0])
    yield INSERT_RECEIPT, (ctx.operation_id, "order_cancel", order)
    return None


def draw_cart(ctx: Context) -> tuple[int, list[tuple[int, int]]]:
    """Draw a customer, and different products with their units, in the order of the products."""
    draw = ctx.rng.randrange
    pick = ctx.pick
    customer = pick(ctx.scale.customers)
    count = 1 + draw(MAX_LINES)
    cart: dict[int, int] = {}
    while len(cart) < count:
        cart[pick(ctx.scale.products)] = 1 + draw(MAX_UNITS)
    return customer, sorted(cart.items())
