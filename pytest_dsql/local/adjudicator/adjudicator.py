"""One cluster's adjudicator: the books, the commit lane, what the tables are, and who is in whose way."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.books import Books
from pytest_dsql.local.adjudicator.monitor import Monitor
from pytest_dsql.local.adjudicator.sandbox.catalog import CATALOG_QUERY, Catalog
from pytest_dsql.local.adjudicator.sandbox.forms import form
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import plan as make_texts
from pytest_dsql.local.gateway.statements import Plan
from pytest_dsql.local.gateway.superuser import QueryFailed

if TYPE_CHECKING:
    from pytest_dsql.local.adjudicator.contender import Contender
    from pytest_dsql.local.cluster import Cluster

#: Helpers that were in use are tried to be renewed this often. Seconds.
_STALE_S: Final = 1.0
#: Statements whose texts are remembered.
_REMEMBERED: Final = 4_096


#: What sandboxes leave behind is thrown away after so many rows, where it is more than so many bytes; a sandbox itself
#: counts as some rows.
_TIDY_AFTER: Final = 10_000
_SANDBOX_ROWS: Final = 50
_TIDY: Final = f"SELECT pytest_dsql_engine_sandbox.tidy({256 * 1024})"

#: A file that is being extended is nobody's for long.
_BLOCKERS: Final = (
    "SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids({pid})) WHERE EXISTS ("
    "SELECT FROM pg_catalog.pg_locks WHERE pid = {pid} AND NOT granted AND locktype <> 'extend')"
)
_CANCEL: Final = "SELECT pg_catalog.pg_cancel_backend({pid})"

#: How the helpers can't be renewed when clients change the catalog at the same time: a lock that isn't given, a
#: deadlock, a row of the catalog that somebody else has written, an object that is gone.
_DISTURBED: Final = frozenset({"55P03", "40P01", "40001", "XX000", "42P01", "42704", "3F000"})
_DISTURBANCES: Final = 20
_CALM_S: Final = 0.01


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
        self._harmless: dict[Plan, bool] = {}  #: SELECTs, whether they leave rows alone, by this catalog:
        self._harmless_by: tuple[Catalog | None, int] = (None, -1)
        self._reading = asyncio.Lock()
        self._left = 0  #: rows that sandboxes have left behind since that was last thrown away
        #: What reads the catalog may have to wait there; who is in whose way is asked apart from it.
        self._helpers = Monitor(cluster.socket_path)
        self._locks = Monitor(cluster.socket_path)

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

    def leaves_rows_alone(self, plan: Plan) -> bool:
        """Whether a SELECT neither locks rows nor calls a function that could write some."""
        known_by, version = self._harmless_by
        if (
            version != self._cluster.catalog_version
            or known_by is not self._catalog
            or len(self._harmless) > _REMEMBERED
        ):
            self._harmless.clear()
            self._harmless_by = self._catalog, self._cluster.catalog_version
        harmless = self._harmless.get(plan)
        if harmless is None:
            harmless = self._harmless[plan] = not (plan.locks or self.calls_functions(plan.statement.sql))
        return harmless

    def calls_functions(self, sql: str) -> bool:
        """Whether a text may call one of the clients' functions, which may write."""
        catalog = self.current_catalog
        if catalog is None:
            # What functions there are is looked up for the first statement that could call one.
            return self._cluster.functions or "(" in sql
        return catalog.may_call(sql)

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

    async def prepare(self, rows: int) -> None:
        """Bring the sandbox's helpers up to date for who will write so many rows there.

        A helper that is in use is renewed the next time.
        """
        stale = self._catalog is not None and self._catalog.stale and time.monotonic() - self._read_at > _STALE_S
        if self._catalog is None or stale or self._read != self._cluster.catalog_version:
            await self._read_catalog(again=stale)
        self._left += rows + _SANDBOX_ROWS
        if self._left >= _TIDY_AFTER and not any(one.sandboxed for one in self.contenders.values()):
            self._left = 0
            await self._helpers.ask(_TIDY)

    async def _read_catalog(self, *, again: bool = False) -> None:
        async with self._reading:
            version = self._cluster.catalog_version
            if self._read == version and self._catalog is not None and not again:
                return
            self._read_at = time.monotonic()
            self._catalog = Catalog.read(await self._described())
            self._texts.clear()
            self._read = version

    async def _described(self) -> str:
        """Have the helpers renewed, and give what the tables are."""
        for _ in range(_DISTURBANCES):
            try:
                ((text,),) = await self._helpers.ask(CATALOG_QUERY)
            except QueryFailed as failed:
                if failed.sqlstate not in _DISTURBED:
                    raise
                await asyncio.sleep(_CALM_S)
            else:
                return text
        ((text,),) = await self._helpers.ask(CATALOG_QUERY)
        return text

    async def blockers(self, pid: int) -> list[Contender]:
        """The sessions whose locks a backend waits for."""
        rows = await self._locks.ask(_BLOCKERS.format(pid=pid))
        return [self.contenders[int(found)] for (found,) in rows if int(found) in self.contenders]

    async def cancel(self, pid: int, running: Callable[[], bool]) -> None:
        """Stop what a backend is doing, if it is still doing that when its turn comes.

        When this is done the backend has got the signal: what is sent to it from then on isn't stopped.
        """
        await self._locks.ask_if(running, _CANCEL.format(pid=pid))

    def close(self) -> None:
        """Close the adjudicator's own connections."""
        self._helpers.close()
        self._locks.close()


def _sql(plan: Plan) -> str:
    return plan.sent.decode("utf-8", "surrogateescape").rstrip(" \t\r\n;")
