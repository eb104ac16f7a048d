"""The rows of the order workload: any row of any table by its index, and whole ranges as COPY text.

Every value follows from (seed, table, index) alone: there is no state, so the same rows come out in whatever order or
chunking they are asked for. Hashes are BLAKE2b (RFC 7693), keyed with the seed: one digest of 64 bytes is enough for a
block of four orders with their ten lines. An integer hash written in Python would have to be computed for each value;
this way a row of COPY text takes 1 us (CPython 3.11), a small part of what the database takes for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, final

from pytest_dsql.workloads.orders.scales import LINES_PER_BLOCK, ORDERS_PER_BLOCK, OrdersScale

#: Loaded rows were created in this year; rows of a measured cell come later.
_EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
_DAYS: Final = 365
_DAY_S: Final = 86_400
_DAY_TEXTS: Final = tuple((_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d ") for day in range(_DAYS))
_MINUTE_TEXTS: Final = tuple(f"{minute // 60:02}:{minute % 60:02}:" for minute in range(1440))
_SECOND_TEXTS: Final = tuple(f"{second:02}+00" for second in range(60))

#: Where the lines of the first three orders of a block end: the four have 1, 2, 3 and 4 lines in a rotated order.
_LINE_ENDS: Final = ((1, 3, 6), (2, 5, 9), (3, 7, 8), (4, 5, 7))
#: A block's digest: four customers, ten lines, the creation time, the turn.
_BLOCK: Final = Struct("<16I")
_FOUR_WORDS: Final = Struct("<4I")

_MIN_PRICE: Final = 100
_PRICES: Final = 99_901  # 1.00 to 1,000.00 in minor units
_MIN_STOCK: Final = 100_000
_STOCKS: Final = 100_000

_VOCABULARY: Final = (
    "amber basalt bamboo birch brass bright broad calm canvas cedar ceramic clear coarse cobalt compact copper "
    "cotton crisp dark deep double dry even extra fine firm flat fresh glass gold grand green grey hand hard "
    "heavy high honey iron ivory jade large lemon light linen long maple matt mild narrow oak olive opal pale "
    "pearl pine plain quiet rapid red round rough silk silver"
)
_WORDS: Final = tuple(_VOCABULARY.split())
assert len(_WORDS) == 64


class Tenant(NamedTuple):
    """A row of `tenants`."""

    id: int
    name: str


class Customer(NamedTuple):
    """A row of `customers`."""

    id: int
    tenant: int
    email: str
    name: str
    created: datetime


class Product(NamedTuple):
    """A row of `products`; the price is in minor units."""

    id: int
    tenant: int
    sku: str
    name: str
    description: str
    price: int


class Stock(NamedTuple):
    """A row of `inventory`."""

    product: int
    quantity: int
    base_quantity: int


class Order(NamedTuple):
    """A row of `orders`; the total is in minor units."""

    id: int
    customer: int
    status: str
    total: int
    created: datetime


class OrderItem(NamedTuple):
    """A row of `order_items`; the price is that of one unit."""

    order: int
    line: int
    product: int
    quantity: int
    price: int


class LedgerEntry(NamedTuple):
    """A row of `ledger`."""

    id: int
    order: int
    kind: str
    amount: int
    created: datetime


class _Block(NamedTuple):
    """Four orders: one entry per order in `customers`, `created_s`, `lines`."""

    customers: tuple[int, ...]
    created_s: tuple[int, ...]  #: seconds since the epoch of the data
    lines: tuple[tuple[tuple[int, int], ...], ...]  #: (product, quantity) of each line


@final
class OrdersData:
    """The rows of one scale and seed. Indexes are ids; orders go on beyond `scale.orders` without end."""

    __slots__ = ("_key", "_prices", "scale", "seed")

    def __init__(self, scale: OrdersScale, seed: int) -> None:
        self.scale: Final = scale
        self.seed: Final = seed
        self._key: Final = seed.to_bytes(8, "little")
        self._prices: array[int] | None = None

    # Rows by index

    def tenant(self, index: int) -> Tenant:
        """Return a tenant."""
        return Tenant(index, f"Tenant {index}")

    def customer(self, index: int) -> Customer:
        """Return a customer."""
        first, last, created, _ = self._words(b"customer", index)
        name = f"{_WORDS[first & 63].title()} {_WORDS[last & 63].title()}"
        email = f"customer{index}@example.com"
        return Customer(index, index % self.scale.tenants, email, name, _moment(created % (_DAYS * _DAY_S)))

    def product(self, index: int) -> Product:
        """Return a product."""
        words = self._words(b"product", index)
        picks = [_WORDS[word >> shift & 63] for word in words for shift in (0, 6, 12, 18, 24)]
        name = f"{picks[0].title()} {picks[1]}"
        return Product(
            index, index % self.scale.tenants, f"SKU-{index:08}", name, " ".join(picks[2:]), self._prices_all()[index]
        )

    def stock(self, index: int) -> Stock:
        """Return a product's stock: as much as the base quantity, since loaded orders were delivered long ago."""
        quantity = _MIN_STOCK + self._words(b"stock", index)[0] % _STOCKS
        return Stock(index, quantity, quantity)

    def order(self, index: int) -> Order:
        """Return an order: placed, its total the sum of its lines."""
        block, position = divmod(index, ORDERS_PER_BLOCK)
        of = self._block(block)
        prices = self._prices_all()
        total = sum(prices[product] * quantity for product, quantity in of.lines[position])
        return Order(index, of.customers[position], "placed", total, _moment(of.created_s[position]))

    def order_items(self, order: int) -> list[OrderItem]:
        """Return the lines of an order: one to four, numbered from 1."""
        block, position = divmod(order, ORDERS_PER_BLOCK)
        prices = self._prices_all()
        return [
            OrderItem(order, number, product, quantity, prices[product])
            for number, (product, quantity) in enumerate(self._block(block).lines[position], 1)
        ]

    def order_item(self, index: int) -> OrderItem:
        """Return a line by its index over all orders, in the order of (order, line)."""
        block, position = divmod(index, LINES_PER_BLOCK)
        first = block * ORDERS_PER_BLOCK
        return [item for order in range(first, first + ORDERS_PER_BLOCK) for item in self.order_items(order)][position]

    def ledger_entry(self, index: int) -> LedgerEntry:
        """Return a ledger entry: the charge of the order with the same id."""
        order = self.order(index)
        return LedgerEntry(index, index, "charge", order.total, order.created)

    # Ranges as COPY text (PostgreSQL's text format: tabs between columns, a newline after each row)

    def tenants_text(self, rows: range) -> bytes:
        """Return tenants as COPY text."""
        return _copy_text(self.tenant(index) for index in rows)

    def customers_text(self, rows: range) -> bytes:
        """Return customers as COPY text."""
        return _copy_text(self.customer(index) for index in rows)

    def products_text(self, rows: range) -> tuple[bytes, bytes]:
        """Return products and their stock as COPY text."""
        return _copy_text(self.product(index) for index in rows), _copy_text(self.stock(index) for index in rows)

    def orders_text(self, rows: range) -> tuple[bytes, bytes, bytes]:
        """Return orders, their lines and their charges as COPY text. `rows` must consist of whole blocks.

        This is the loader's hot path, so it repeats `order`, `order_items` and `ledger_entry` without their tuples.
        """
        if rows.start % ORDERS_PER_BLOCK or rows.stop % ORDERS_PER_BLOCK or rows.step != 1:
            raise ValueError(f"orders come in blocks of {ORDERS_PER_BLOCK}, not {rows}")
        prices = self._prices_all()
        orders: list[str] = []
        items: list[str] = []
        charges: list[str] = []
        order = rows.start
        for block in range(rows.start // ORDERS_PER_BLOCK, rows.stop // ORDERS_PER_BLOCK):
            customers, moments, all_lines = self._block(block)
            for customer, moment, lines in zip(customers, moments, all_lines, strict=True):
                total = 0
                number = 1
                for product, quantity in lines:
                    price = prices[product]
                    total += price * quantity
                    items.append(f"{order}\t{number}\t{product}\t{quantity}\t{price}\n")
                    number += 1
                minute, second = divmod(moment, 60)
                created = _DAY_TEXTS[minute // 1440] + _MINUTE_TEXTS[minute % 1440] + _SECOND_TEXTS[second]
                orders.append(f"{order}\t{customer}\tplaced\t{total}\t{created}\n")
                charges.append(f"{order}\t{order}\tcharge\t{total}\t{created}\n")
                order += 1
        return "".join(orders).encode(), "".join(items).encode(), "".join(charges).encode()

    # Hashes

    def _block(self, index: int) -> _Block:
        digest = blake2b(index.to_bytes(8, "little"), key=self._key, digest_size=64, person=b"order").digest()
        word = _BLOCK.unpack(digest)
        buyers = self.scale.customers
        products = self.scale.products
        lines = [((one >> 1) % products, 1 + (one & 1)) for one in word[4:14]]
        first, second, third = _LINE_ENDS[word[15] & 3]
        moment = word[14] % (_DAYS * _DAY_S - ORDERS_PER_BLOCK)
        return _Block(
            (word[0] % buyers, word[1] % buyers, word[2] % buyers, word[3] % buyers),
            (moment, moment + 1, moment + 2, moment + 3),
            (tuple(lines[:first]), tuple(lines[first:second]), tuple(lines[second:third]), tuple(lines[third:])),
        )

    def _words(self, table: bytes, index: int) -> tuple[int, ...]:
        digest = blake2b(index.to_bytes(8, "little"), key=self._key, digest_size=16, person=table).digest()
        return _FOUR_WORDS.unpack(digest)

    def _prices_all(self) -> array[int]:
        """Return the price of every product: each of their order lines needs it (1.6 MB at full scale)."""
        if self._prices is None:
            self._prices = array(
                "q",
                (_MIN_PRICE + self._words(b"price", index)[0] % _PRICES for index in range(self.scale.products)),
            )
        return self._prices


def _moment(second: int) -> datetime:
    return _EPOCH + timedelta(seconds=second)


def _copy_text(rows: Iterator[tuple[object, ...]]) -> bytes:
    # No value holds a tab, newline or backslash, so nothing needs escaping.
    return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()
