"""What a run of a cell gets: a number, ids and set-aside orders that no other run has."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_dsql.errors import ForeignSchema, UsageError
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.transaction import CellRun, CellWorkload, Context, Tally
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.scales import SCALES
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.orders.transactions import order_cancel
from pytest_dsql.workloads.orders.workload import Orders

TINY = SCALES["tiny"]


def _cancel(connect: Connect, run: CellRun, count: int) -> Tally:
    ctx = Context(seed=1, run=run, scale=TINY)
    with connect() as connection:
        assert all(run_transaction(connection, order_cancel, ctx).committed for _ in range(count))
    return Tally(committed={"order_cancel": count}, ambiguous={})


def test_orders_is_a_workload_of_cells() -> None:
    workload: CellWorkload = Orders("tiny")
    assert workload.scale is TINY


def test_the_mix_carries_its_workload() -> None:
    orders = Orders("tiny")
    assert orders.mix.workload is orders


def test_an_unknown_scale_or_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="no scale 'huge'"):
        Orders("huge")
    with pytest.raises(UsageError, match="seed must be a number from 0"):
        Orders("tiny", seed=-1)


def test_a_run_says_where_its_rows_are(loaded: Connect) -> None:
    run = Orders("tiny").begin_cell(loaded, cell="c", slots=2, requests_hint=100)
    assert run.operation_prefix == f"r{run.number:08}-"
    assert run.id_range().start > TINY.orders
    assert len(run.pools["cancellable"]) == 13 + 2 * 16  # a tenth of the requests, a quarter more, and some per slot
    with loaded() as connection:
        assert run.receipt_sql is not None
        assert connection.execute(run.receipt_sql.replace("$1", "%s"), ("r-none",)).fetchone() is None
        stock = connection.execute(f"SELECT quantity FROM {SCHEMA}.inventory ORDER BY product").fetchall()
    assert list(run.snapshot) == [quantity for (quantity,) in stock]


def test_a_run_travels_to_a_worker(loaded: Connect) -> None:
    run = Orders("tiny").begin_cell(loaded, cell="c", slots=2, requests_hint=100)
    assert pickle.loads(pickle.dumps(run)) == run


def test_runs_claimed_at_the_same_time_share_nothing(loaded: Connect) -> None:
    def begin(_: int) -> CellRun:
        return Orders("tiny").begin_cell(loaded, cell="c", slots=1, requests_hint=10)

    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(begin, range(12)))
    assert len({run.number for run in runs}) == 12
    rows = [order for run in runs for order in run.pools["cancellable"]]
    assert len(set(rows)) == len(rows)


def test_set_aside_orders_never_run_short(connect: Connect) -> None:
    """What the loaded rows cannot give is loaded, whole and placed, with ids beyond the design's."""
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    data = OrdersData(TINY, 1)
    seen: list[int] = []
    for _ in range(3):
        run = orders.begin_cell(connect, cell="c", slots=1, requests_hint=2_000)
        pool = run.pools["cancellable"]
        seen += pool
        with connect() as connection:
            rows = connection.execute(
                f"SELECT id, status, total FROM {SCHEMA}.orders WHERE id >= %s AND id < %s ORDER BY id",
                (pool.start, pool.stop),
            ).fetchall()
        assert rows == [(order, "placed", data.order(order).total) for order in pool]
    assert seen == list(range(TINY.first_set_aside, seen[-1] + 1))
    assert seen[-1] > TINY.orders


def test_untouched_set_aside_orders_go_back_to_the_reserve(connect: Connect) -> None:
    """All but four per slot: those may belong to COMMITs that are still on their way."""
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    first = orders.begin_cell(connect, cell="c", slots=1, requests_hint=100)
    orders.check_cell(connect, first, _cancel(connect, first, 5))
    second = orders.begin_cell(connect, cell="c", slots=1, requests_hint=100)
    assert second.pools["cancellable"].start == first.pools["cancellable"].start + 5 + 4
    orders.check_cell(connect, second, _cancel(connect, second, 0))
    third = orders.begin_cell(connect, cell="c", slots=1, requests_hint=100)
    assert third.pools["cancellable"].start == second.pools["cancellable"].start + 4


def test_a_check_never_takes_orders_from_a_run_that_still_goes_on(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    ended = orders.begin_cell(connect, cell="c", slots=1, requests_hint=10)
    going_on = orders.begin_cell(connect, cell="c", slots=1, requests_hint=10)
    orders.check_cell(connect, ended, _cancel(connect, ended, 1))
    following = orders.begin_cell(connect, cell="c", slots=1, requests_hint=10)
    assert following.pools["cancellable"].start == going_on.pools["cancellable"].stop


def test_a_mix_without_cancels_sets_nothing_aside(loaded: Connect) -> None:
    run = Orders("tiny").begin_cell(loaded, cell="c", slots=4, requests_hint=10**9, shares={"product_read": 1.0})
    assert len(run.pools["cancellable"]) == 0


def test_a_cell_needs_loaded_data(connect: Connect) -> None:
    with pytest.raises(UsageError, match="not loaded"):
        Orders("tiny").begin_cell(connect, cell="c", slots=1, requests_hint=1)


def test_a_cell_on_somebody_elses_schema_is_refused(connect: Connect) -> None:
    with connect() as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"CREATE TABLE {SCHEMA}.orders (id bigint)")
    with pytest.raises(ForeignSchema, match="somebody else's"):
        Orders("tiny").begin_cell(connect, cell="c", slots=1, requests_hint=1)


def test_a_cell_on_other_data_of_ours_is_refused(loaded: Connect) -> None:
    with pytest.raises(UsageError, match="--dsql-scale tiny --dsql-seed 1"):
        Orders("tiny", seed=2).begin_cell(loaded, cell="c", slots=1, requests_hint=1)
