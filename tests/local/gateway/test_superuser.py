"""The engine's own connection to PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway.superuser import QueryFailed, SuperuserConnection
from tests.local.gateway.harness import direct


def run(cluster: Cluster, ask: Callable[[SuperuserConnection], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        connection = await SuperuserConnection.open(cluster.socket_path, application_name="asking")
        try:
            return await ask(connection)
        finally:
            connection.close()

    return asyncio.run(inside())


def test_rows_are_texts(cluster: Cluster) -> None:
    sql = "SELECT g, NULL, 'ü' FROM generate_series(1, 2) g"
    assert run(cluster, lambda connection: connection.query(sql)) == [("1", "", "ü"), ("2", "", "ü")]


def test_an_error_leaves_the_connection_usable(cluster: Cluster) -> None:
    async def ask(connection: SuperuserConnection) -> Any:
        with pytest.raises(QueryFailed, match="22012: division by zero") as raised:
            await connection.query("SELECT 1 / 0")
        assert raised.value.sqlstate == "22012"
        return await connection.query("SELECT 1")

    assert run(cluster, ask) == [("1",)]


def test_a_notification_is_told(cluster: Cluster) -> None:
    async def ask(connection: SuperuserConnection) -> None:
        await connection.query("LISTEN here")
        with direct(cluster) as other:
            other.execute("NOTIFY here")
        await asyncio.wait_for(connection.notified.wait(), 10)

    run(cluster, ask)


def test_an_answer_that_nobody_waits_for_is_not_taken_for_the_next(cluster: Cluster) -> None:
    async def ask(connection: SuperuserConnection) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.query("SELECT pg_sleep(1)"), 0.01)
        assert connection.lost  # so that nobody takes it for one that can be asked
        with pytest.raises(ConnectionResetError):
            await connection.query("SELECT 2")

    run(cluster, ask)


def test_a_connection_that_is_closed_says_so(cluster: Cluster) -> None:
    async def ask(connection: SuperuserConnection) -> None:
        with pytest.raises(ConnectionResetError):
            await connection.query("SELECT pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(ConnectionResetError):
            await connection.query("SELECT 1")

    run(cluster, ask)
