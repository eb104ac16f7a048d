"""The four transactions of the order workload in as few round trips as they allow: one for reads, three for writes.

They are the same operations with the same names, draws and rows; independent statements go together, and the last ones
with the COMMIT. In cells with `pipeline=True` the BEGIN goes with the first. What the receipt decides is not sent
before it has answered: a repeated request that finds its own must not take stock a second time.
"""

from __future__ import annotations

from typing import Final

from pytest_dsql.transaction import Context, Last, Rejected, Steps, Transaction, transaction
from pytest_dsql.workloads.orders.transactions import (
    CANCEL_ORDER,
    INSERT_CHARGE,
    INSERT_LINES,
    INSERT_ORDER,
    INSERT_RECEIPT,
    INSERT_REFUND,
    NEWEST_ORDERS,
    PRODUCT_WITH_STOCK,
    RECEIPT,
    RETURN_STOCK,
    TAKE_STOCK,
    UNITS_OF_ORDER,
    draw_cart,
)


@transaction(kind="read")
def product_read(ctx: Context) -> Steps:
    """Read a product with its stock."""
    yield Last([(PRODUCT_WITH_STOCK, (ctx.pick(ctx.scale.products),))])
    return None


@transaction(kind="read")
def order_history(ctx: Context) -> Steps:
    """Read a customer's 20 newest orders with their lines and units."""
    yield Last([(NEWEST_ORDERS, (ctx.pick(ctx.scale.customers),))])
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
    taken = yield [(TAKE_STOCK, line) for line in cart]
    for (product, units), answer in zip(cart, taken, strict=True):
        row = answer.one()
        if row is None:
            return Rejected("out of stock")
        price = row[0]
        total += price * units
        lines += (product, units, price)
    yield Last(
        [
            (INSERT_ORDER, (order, customer, total)),
            (INSERT_LINES[len(cart)], lines),
            (INSERT_CHARGE, (ctx.new_id(), order, total)),
            (INSERT_RECEIPT, (ctx.operation_id, "order_create", order)),
        ]
    )
    return None


@transaction(kind="write")
def order_cancel(ctx: Context) -> Steps:
    """Cancel an order that was set aside for it, return its stock and refund it; rejected when it is not placed."""
    order = ctx.draw("cancellable")
    if order is None:
        return Rejected("no set-aside order left in this cell")
    receipt, units_of_order = yield [(RECEIPT, (ctx.operation_id,)), (UNITS_OF_ORDER, (order,))]
    if receipt.rowcount:
        return None  # an earlier attempt committed, although its answer was lost
    returned = [(RETURN_STOCK, (product, units)) for product, units in units_of_order.rows]
    cancelled, *_ = yield [(CANCEL_ORDER, (order,)), *returned]
    row = cancelled.one()
    if row is None:
        return Rejected("order is not placed")
    yield Last(
        [
            (INSERT_REFUND, (ctx.new_id(), order, row[0])),
            (INSERT_RECEIPT, (ctx.operation_id, "order_cancel", order)),
        ]
    )
    return None


#: The published mix.
SHARES: Final[dict[Transaction, float]] = {product_read: 0.4, order_history: 0.3, order_create: 0.2, order_cancel: 0.1}
