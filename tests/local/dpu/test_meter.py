"""The totals of a cluster, without a cluster: tables that nobody can look up have rows of the least size."""

import asyncio

import pytest

from pytest_dsql.local.dpu import meter as meters
from pytest_dsql.local.dpu.formulas import READ, READ_MINIMUM, WRITE, WRITE_MINIMUM
from pytest_dsql.local.dpu.meter import DpuTotals, Meter
from pytest_dsql.local.dpu.tables import Table
from pytest_dsql.local.gateway.hooks import Statement

READING = Statement("select", "SELECT * FROM t WHERE id = $1", reads=("t",))
WRITING = Statement("dml", "INSERT INTO t VALUES ($1)", writes=("t",))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Table]:
    """The tables that can be looked up."""
    tables: dict[str, Table] = {}

    async def look_up(_path: str, names: set[str]) -> dict[str, Table]:
        return {name: tables[name] for name in names & tables.keys()}

    monkeypatch.setattr(meters, "look_up", look_up)
    return tables


def totals(*counted: tuple[list[tuple[Statement, bytes]], bool], multi_region: bool = False) -> DpuTotals:
    meter = Meter("/nowhere/socket", multi_region=multi_region)
    for answers, committed in counted:
        meter.count(answers, committed=committed)
    return asyncio.run(meter.totals())


def test_small_transactions_cost_their_minimums(known: dict[str, Table]) -> None:
    found = totals(*[([(READING, b"SELECT 1"), (WRITING, b"INSERT 0 1")], True)] * 10)
    assert (found.transactions, found.writing_transactions) == (10, 10)
    assert found.read == pytest.approx(10 * READ_MINIMUM, rel=1e-3)
    assert found.write == pytest.approx(10 * WRITE_MINIMUM, rel=1e-3)
    assert found.multi_region_write == 0


def test_large_ones_cost_their_bytes(known: dict[str, Table]) -> None:
    known["t"] = Table(300.0, (frozenset({"v"}),))
    found = totals(([(READING, b"SELECT 100")], True), ([(WRITING, b"INSERT 0 50")], True))
    assert found.read == pytest.approx((100 * 300 + 50 * 128) * READ)
    assert found.write == pytest.approx(50 * (300 + 128) * WRITE)


def test_an_update_writes_the_entries_of_the_indexes_that_it_changes(known: dict[str, Table]) -> None:
    known["t"] = Table(128.0, (frozenset({"v"}), frozenset({"w"})))
    moving = Statement("dml", "UPDATE t SET v = $1", writes=("t",))
    staying = Statement("dml", "UPDATE t SET n = $1", writes=("t",))
    assert totals(([(moving, b"UPDATE 100")], True)).write == pytest.approx(100 * 256 * WRITE)
    assert totals(([(staying, b"UPDATE 100")], True)).write == pytest.approx(100 * 128 * WRITE)


def test_what_was_rolled_back_was_read_but_not_written(known: dict[str, Table]) -> None:
    found = totals(([(WRITING, b"INSERT 0 1000")], False))
    assert found.write == 0
    assert found.read == pytest.approx(1000 * 128 * READ)


def test_a_multi_region_cluster_writes_twice(known: dict[str, Table]) -> None:
    found = totals(([(WRITING, b"INSERT 0 1")], True), multi_region=True)
    assert found.multi_region_write == found.write > 0


@pytest.mark.parametrize("tag", [b"BEGIN", b"COMMIT", b"SET", b"CREATE TABLE", b""])
def test_other_statements_cost_nothing(known: dict[str, Table], tag: bytes) -> None:
    found = totals(([(Statement("other", "x"), tag)], True))
    assert (found.read, found.write, found.transactions) == (0, 0, 0)


def test_many_kinds_of_transactions_are_weighed_and_forgotten(
    known: dict[str, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "_MOST_SHAPES", 3)
    found = totals(*[([(WRITING, b"INSERT 0 %d" % rows)], True) for rows in range(1, 12)])
    assert found.writing_transactions == 11
    assert found.write == pytest.approx(sum(max(rows * 128, 1024) for rows in range(1, 12)) * WRITE)


def test_a_reset_begins_anew(known: dict[str, Table]) -> None:
    meter = Meter("/nowhere/socket", multi_region=False)
    meter.count([(WRITING, b"INSERT 0 1")], committed=True)
    meter.reset()
    assert asyncio.run(meter.totals()).total == 0
