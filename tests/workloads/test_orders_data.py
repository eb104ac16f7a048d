"""The generator: any row by its index, the same whatever the order and the chunking; keys meet, totals add up."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.scales import SCALES, OrdersScale

SCALE = OrdersScale("property", tenants=3, customers=41, products=17, orders=800, set_aside=400)
DATA = OrdersData(SCALE, 7)

blocks = st.integers(0, 5_000_000)
orders = st.integers(0, 20_000_000)
seeds = st.integers(0, 2**63 - 1)


def _rows(text: bytes) -> list[list[str]]:
    return [line.split("\t") for line in text.decode().splitlines()]


def _texts(row: tuple[object, ...]) -> list[str]:
    return [f"{value:%Y-%m-%d %H:%M:%S}+00" if isinstance(value, datetime) else str(value) for value in row]


@given(seed=seeds, first=blocks, count=st.integers(0, 6), cut=st.integers(0, 6))
def test_orders_are_the_same_in_one_piece_and_in_two(seed: int, first: int, count: int, cut: int) -> None:
    data = OrdersData(SCALE, seed)
    start, stop = first * 4, (first + count) * 4
    middle = start + 4 * min(cut, count)
    whole = data.orders_text(range(start, stop))
    left, right = data.orders_text(range(start, middle)), data.orders_text(range(middle, stop))
    assert whole == tuple(one + other for one, other in zip(left, right, strict=True))


@given(seed=seeds, block=blocks)
def test_copy_text_holds_the_rows_that_indexing_gives(seed: int, block: int) -> None:
    data = OrdersData(SCALE, seed)
    ids = range(block * 4, block * 4 + 4)
    order_text, item_text, charge_text = data.orders_text(ids)
    assert _rows(order_text) == [_texts(data.order(index)) for index in ids]
    assert _rows(item_text) == [_texts(item) for index in ids for item in data.order_items(index)]
    assert _rows(charge_text) == [_texts(data.ledger_entry(index)) for index in ids]


@given(first=st.integers(0, 16), length=st.integers(0, 17))
def test_copy_text_of_products_holds_the_rows_that_indexing_gives(first: int, length: int) -> None:
    ids = range(first, min(first + length, SCALE.products))
    products, stock = DATA.products_text(ids)
    assert _rows(products) == [_texts(DATA.product(index)) for index in ids]
    assert _rows(stock) == [_texts(DATA.stock(index)) for index in ids]


def test_copy_text_of_customers_and_tenants_holds_the_rows_that_indexing_gives() -> None:
    customers = _rows(DATA.customers_text(range(SCALE.customers)))
    assert [row[:4] for row in customers] == [_texts(DATA.customer(index))[:4] for index in range(SCALE.customers)]
    assert [datetime.fromisoformat(row[4]) for row in customers] == [
        DATA.customer(index).created for index in range(SCALE.customers)
    ]
    assert _rows(DATA.tenants_text(range(3))) == [_texts(DATA.tenant(index)) for index in range(3)]


@given(seed=seeds, order=orders)
def test_references_of_an_order_exist_and_its_total_is_the_sum_of_its_lines(seed: int, order: int) -> None:
    data = OrdersData(SCALE, seed)
    row = data.order(order)
    items = data.order_items(order)
    assert 0 <= row.customer < SCALE.customers
    assert all(0 <= item.product < SCALE.products for item in items)
    assert all(item.price == data.product(item.product).price for item in items)
    assert [item.line for item in items] == list(range(1, len(items) + 1))
    assert row.total == sum(item.quantity * item.price for item in items) > 0
    assert data.ledger_entry(order)[1:4] == (order, "charge", row.total)


@given(index=st.integers(0, 50_000_000))
def test_order_items_are_indexed_in_the_order_of_their_keys(index: int) -> None:
    one, other = DATA.order_item(index), DATA.order_item(index + 1)
    assert (one.order, one.line) < (other.order, other.line)
    assert one in DATA.order_items(one.order)


@given(seed=seeds, block=blocks)
def test_a_block_of_four_orders_has_ten_lines(seed: int, block: int) -> None:
    data = OrdersData(SCALE, seed)
    counts = [len(data.order_items(order)) for order in range(block * 4, block * 4 + 4)]
    assert sorted(counts) == [1, 2, 3, 4]


def test_the_design_has_exactly_the_lines_it_says() -> None:
    assert sum(len(DATA.order_items(order)) for order in range(SCALE.orders)) == SCALE.order_items


@given(index=st.integers(0, 10**6))
@settings(max_examples=50)
def test_values_hold_nothing_that_copy_text_would_escape(index: int) -> None:
    row = [*DATA.customer(index), *DATA.order(index)]
    assert not any(mark in str(value) for value in row for mark in "\t\n\r\\")


def test_unique_columns_are_unique() -> None:
    data = OrdersData(SCALES["tiny"], 1)
    assert len({data.customer(index).email for index in range(100)}) == 100
    assert len({data.product(index).sku for index in range(50)}) == 50


def test_another_seed_gives_other_rows() -> None:
    assert OrdersData(SCALE, 1).orders_text(range(40)) != OrdersData(SCALE, 2).orders_text(range(40))


def test_the_same_seed_gives_the_same_rows_on_every_machine() -> None:
    # Loaded rows are compared across targets and runs, so this must never change without a new schema version.
    order = OrdersData(SCALES["quick"], 1).order(5)
    assert (order.customer, order.total, order.created.isoformat()) == (8498, 290192, "2025-02-27T01:54:12+00:00")


def test_customers_and_products_are_drawn_evenly() -> None:
    data = OrdersData(SCALES["tiny"], 1)
    buyers = Counter(data.order(order).customer for order in range(20_000))
    goods = Counter(item.product for order in range(20_000) for item in data.order_items(order))
    # Binomial: 200 +- 14 orders per customer, 1,000 +- 31 lines per product; six deviations never happen.
    assert min(buyers.values()) > 200 - 6 * 14 < max(buyers.values()) < 200 + 6 * 14
    assert min(goods.values()) > 1_000 - 6 * 31 < max(goods.values()) < 1_000 + 6 * 31


@pytest.mark.parametrize("ids", [range(1, 5), range(6), range(0, 8, 2)])
def test_orders_are_written_in_whole_blocks(ids: range) -> None:
    with pytest.raises(ValueError, match="blocks of 4"):
        DATA.orders_text(ids)
