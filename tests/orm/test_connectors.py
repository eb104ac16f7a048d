"""The official connector's pools on psycopg and asyncpg, and asyncpg alone."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import aurora_dsql_asyncpg
import aurora_dsql_psycopg
import pytest
from psycopg import AsyncConnection, Connection

from tests.orm.conftest import Address

CREATE = "CREATE TABLE orm_account (id int PRIMARY KEY, balance int NOT NULL)"
FILL = "INSERT INTO orm_account VALUES (1, 100), (2, 100)"
MOVE = "UPDATE orm_account SET balance = balance + {} WHERE id = {}"
TOTAL = "SELECT sum(balance)::int, min(balance) FROM orm_account"


@pytest.fixture
def options(address: Address) -> dict[str, Any]:
    """How the connector on libpq is called."""
    return {
        "host": address.host,
        "user": "admin",
        "sslmode": "verify-full",
        "sslrootcert": address.ca_file,
        **address.libpq,
    }


@pytest.fixture
def asyncpg_options(resolved: Address) -> dict[str, Any]:
    """How asyncpg is called."""
    return {
        "host": resolved.host,
        "port": resolved.port,
        "user": "admin",
        "region": resolved.region,
        "ssl": ssl.create_default_context(cafile=resolved.ca_file),
    }


def test_a_pool_of_psycopg_connections(options: dict[str, Any]) -> None:
    def move(connection: Connection[Any]) -> int:
        connection.execute(MOVE.format(-10, 1).encode())
        return connection.execute(MOVE.format(10, 2).encode()).rowcount

    retry = aurora_dsql_psycopg.OCCRetryConfig()
    with aurora_dsql_psycopg.create_pool(kwargs=options, min_size=2, max_size=4, retry=retry) as pool:
        with pool.connection() as connection:
            connection.autocommit = True
            connection.execute(CREATE)
            connection.execute(FILL)
            connection.autocommit = False
        assert pool.run_transaction(move) == 1
        with pool.connection() as connection:
            assert connection.execute(TOTAL).fetchone() == (200, 90)


def test_a_pool_of_asynchronous_psycopg_connections(options: dict[str, Any]) -> None:
    async def move(connection: AsyncConnection[Any]) -> None:
        await connection.execute(MOVE.format(-10, 1).encode())
        await connection.execute(MOVE.format(10, 2).encode())

    async def work() -> Any:
        async with aurora_dsql_psycopg.create_async_pool(kwargs=options, min_size=1, max_size=4, retry=True) as pool:
            async with pool.connection() as connection:
                await connection.set_autocommit(True)
                await connection.execute(CREATE)
                await connection.execute(FILL)
                await connection.set_autocommit(False)
            await asyncio.gather(*(_patiently(pool.run_transaction, move) for _ in range(4)))
            async with pool.connection() as connection:
                return await (await connection.execute(TOTAL)).fetchone()

    assert asyncio.run(work()) == (200, 60)


async def _patiently(run: Callable[[Any], Awaitable[Any]], work: Callable[[Any], Awaitable[Any]]) -> None:
    """Retry beyond the connector's three times: four transactions on two rows need more with bad luck."""
    for _ in range(20):
        try:
            await run(work)
        except Exception as error:
            if getattr(error, "sqlstate", None) != "40001" and getattr(error.__cause__, "sqlstate", None) != "40001":
                raise
            continue
        return
    raise AssertionError("never succeeded")


def test_a_pool_of_asyncpg_connections(asyncpg_options: dict[str, Any]) -> None:
    async def move(connection: Any) -> None:
        await connection.execute(MOVE.format(-10, 1))
        await connection.execute(MOVE.format(10, 2))

    async def work() -> Any:
        pool = await aurora_dsql_asyncpg.create_pool(**asyncpg_options, min_size=1, max_size=4, retry=True)
        async with pool:
            await pool.execute(CREATE)
            await pool.execute(FILL)
            await asyncio.gather(*(_patiently(pool.run_transaction, move) for _ in range(4)))
            return await pool.fetchrow(TOTAL)

    assert tuple(asyncio.run(work())) == (200, 60)


def _with_asyncpg(options: dict[str, Any], work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        connection = await aurora_dsql_asyncpg.connect(**options)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


VALUES = (
    7,
    2**40,
    1.5,
    decimal.Decimal("12.34"),
    "ü",
    b"\x00\x01",
    True,
    uuid.UUID(int=5),
    datetime.date(2026, 11, 30),
    datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC),
    datetime.timedelta(hours=3),
    '{"a": 1}',
)
TYPES = "int, bigint, double precision, numeric(9,2), text, bytea, boolean, uuid, date, timestamptz, interval, jsonb"


def test_asyncpg_writes_and_reads_every_kind_of_value(asyncpg_options: dict[str, Any]) -> None:
    async def work(connection: asyncpg.Connection) -> Any:
        columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(TYPES.split(", ")))
        await connection.execute(f"CREATE TABLE orm_kinds ({columns})")
        await connection.execute(
            f"INSERT INTO orm_kinds VALUES ({', '.join(f'${n}' for n in range(1, len(VALUES) + 1))})", *VALUES
        )
        return await connection.fetchrow("SELECT * FROM orm_kinds")

    assert tuple(_with_asyncpg(asyncpg_options, work)) == VALUES


def test_asyncpg_learns_types_that_are_only_there_at_run_time(asyncpg_options: dict[str, Any]) -> None:
    async def work(connection: asyncpg.Connection) -> Any:
        await connection.execute("CREATE DOMAIN orm_positive AS int CHECK (value > 0)")
        return await connection.fetchrow(
            "SELECT $1::int[], $2::text[], ROW(1, 'a'), '[1,5)'::int4range, 3::orm_positive", [1, 2], ["a", None]
        )

    numbers, texts, row, range_, positive = _with_asyncpg(asyncpg_options, work)
    assert (numbers, texts, tuple(row), positive) == ([1, 2], ["a", None], (1, "a"), 3)
    assert (range_.lower, range_.upper) == (1, 5)


def test_asyncpg_copies_many_rows_and_walks_through_them(asyncpg_options: dict[str, Any]) -> None:
    async def work(connection: asyncpg.Connection) -> Any:
        await connection.execute("CREATE TABLE orm_many (k int PRIMARY KEY, v text)")
        rows = [(k, f"v{k}") for k in range(500)]
        await connection.copy_records_to_table("orm_many", records=rows)
        await connection.executemany("INSERT INTO orm_many VALUES ($1, $2)", [(k, "x") for k in range(500, 600)])
        statement = await connection.prepare("SELECT k FROM orm_many ORDER BY k")
        async with connection.transaction(readonly=True):
            return [record["k"] async for record in statement.cursor(prefetch=50)]

    assert _with_asyncpg(asyncpg_options, work) == list(range(600))


def test_asyncpg_transactions_end_as_they_should(asyncpg_options: dict[str, Any]) -> None:
    async def move_and_fill(connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.execute(MOVE.format(5, 1))
            await connection.execute(FILL)

    async def work(connection: asyncpg.Connection) -> Any:
        await connection.execute(CREATE)
        await connection.execute(FILL)
        with pytest.raises(asyncpg.UniqueViolationError):
            await move_and_fill(connection)
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="SAVEPOINT"):
            async with connection.transaction(), connection.transaction():
                pass
        async with connection.transaction():
            await connection.execute(MOVE.format(1, 1))
        return await connection.fetchrow(TOTAL)

    assert tuple(_with_asyncpg(asyncpg_options, work)) == (201, 100)
