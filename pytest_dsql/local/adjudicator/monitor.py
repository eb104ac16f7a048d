"""The adjudicator's own connections to PostgreSQL: what it asks there, one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final

from pytest_dsql.local.gateway.superuser import Row, SuperuserConnection


@final
class Monitor:
    """One connection, opened when something is asked, and again after it was lost."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._asking = asyncio.Lock()
        self._connection: SuperuserConnection | None = None

    async def ask(self, sql: str) -> Sequence[Row]:
        """Ask PostgreSQL. Raises QueryFailed, and OSError when it doesn't answer."""
        return await self.ask_if(lambda: True, sql)

    async def ask_if(self, wanted: Callable[[], bool], sql: str) -> Sequence[Row]:
        """Ask, unless nobody wants to know any more when it is this question's turn."""
        async with self._asking:
            if self._connection is None or self._connection.lost:
                self._connection = await SuperuserConnection.open(self._socket_path)
            return await self._connection.query(sql) if wanted() else ()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
