"""One cluster's adjudicator: the books, the commit lane, what the tables are, and who is in whose way."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.books import Books
from pytest_dsql.local.adjudicator.sandbox.catalog import CATALOG_QUERY, Catalog
from pytest_dsql.local.adjudicator.sandbox.forms import form
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import plan as make_texts
from pytest_dsql.local.gateway.statements import Plan
from pytest_dsql.local.gateway.superuser import SuperuserConnection

if TYPE_CHECKING:
    from pytest_dsql.local.adjudicator.contender import Contender
    from pytest_dsql.local.cluster import Cluster

#: Helpers that were in use are tried to be renewed this often. Seconds.
_STALE_S: Final = 1.0
#: Statements whose texts are remembered.
_REMEMBERED: Final = 4_096


#: A file that is being extended is nobody's for long.
_BLOCKERS: Final = (
    "SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids({pid})) WHERE EXISTS ("
    "SELECT FROM pg_catalog.pg_locks WHERE pid = {pid} AND NOT granted AND locktype <> 'extend')"
)


@final
class Adjudicator:
    """What the sessions of a cluster share. For one event loop only."""

    def __init__(self, cluster: Cluster) -> None:
        self.books = Books()
        self.lane = asyncio.Lock()  #: who replays a transaction for real holds it
        self.contenders: dict[int, Contender] = {}  #: by their backend's process id
        self._cluster = cluster
        self._catalog: Catalog | None = None
        self._read = -1  #: the catalog's version that was read
        self._read_at = 0.0
        self._texts: OrderedDict[tuple[Plan, tuple[str, ...]], Texts] = OrderedDict()
        self._asking = asyncio.Lock()
        self._connection: SuperuserConnection | None = None

    def known(self, plan: Plan, schemas: tuple[str, ...] | None) -> Texts | None:
        """A statement's texts, where they can be told at once."""
        if schemas is None or self._catalog is None or self._read != self._cluster.catalog_version:
            return None
        key = (plan, schemas)
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = make_texts(form(_sql(plan)), self._catalog, schemas)
            if len(self._texts) > _REMEMBERED:
                self._texts.popitem(last=False)
        return found

    @property
    def catalog(self) -> Catalog | None:
        """The tables as they were last read."""
        return self._catalog

    @property
    def current_catalog(self) -> Catalog | None:
        """The tables, unless they may have changed since they were read."""
        return self._catalog if self._read == self._cluster.catalog_version else None

    async def texts(self, plan: Plan, schemas: tuple[str, ...]) -> Texts:
        """A statement's texts, from the tables as they are."""
        while (found := self.known(plan, schemas)) is None:
            await self._read_catalog()
        return found

    async def prepare(self) -> None:
        """Bring the sandbox's helpers up to date. A helper that is in use is renewed the next time."""
        stale = self._catalog is not None and self._catalog.stale and time.monotonic() - self._read_at > _STALE_S
        if self._catalog is None or stale or self._read != self._cluster.catalog_version:
            await self._read_catalog(again=stale)

    async def _read_catalog(self, *, again: bool = False) -> None:
        async with self._asking:
            version = self._cluster.catalog_version
            if self._read == version and self._catalog is not None and not again:
                return
            self._read_at = time.monotonic()
            connection = await self._connected()
            ((text,),) = await connection.query(CATALOG_QUERY)
            self._catalog = Catalog.read(text)
            self._texts.clear()
            self._read = version

    async def blockers(self, pid: int) -> list[Contender]:
        """The sessions whose locks a backend waits for."""
        async with self._asking:
            connection = await self._connected()
            rows = await connection.query(_BLOCKERS.format(pid=pid))
        return [self.contenders[int(found)] for (found,) in rows if int(found) in self.contenders]

    async def _connected(self) -> SuperuserConnection:
        if self._connection is None or self._connection.lost:
            self._connection = await SuperuserConnection.open(self._cluster.socket_path)
        return self._connection

    def close(self) -> None:
        """Close the adjudicator's own connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _sql(plan: Plan) -> str:
    return plan.sent.decode("utf-8", "surrogateescape").rstrip(" \t\r\n;")
