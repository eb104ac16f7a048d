"""Lends PostgreSQL's connections to the sessions that have something to ask.

A session that has nothing to ask needs no process of PostgreSQL: 10,000 connections may be open, and a machine carries
some hundreds of processes. A connection goes to the session whose statement comes, stays while the session is busy, and
comes back when nothing has come for a tenth of a second. What a session leaves in it - prepared statements - is made
again in the next one; a session that has left more than that (settings, cursors, sequence values) keeps the one it has.

So what is bounded is how many sessions are busy, or keep their connection, at once: `most`. A statement beyond that
waits for a connection to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.loan import Form, Loan
from pytest_dsql.local.gateway.opening import BackendRefused, open_backend
from pytest_dsql.local.gateway.pooled import PooledBackend
from pytest_dsql.local.gateway.startup import Startup

_LOG: Final = logging.getLogger(__name__)

#: Nobody waits for a lock: the adjudicator finds another way.
IMPATIENT_MS: Final = 5
_IMPATIENT: Final = (("lock_timeout", f"{IMPATIENT_MS}ms"),)

#: PostgreSQL connections opened at the same time. More only queue in its listen backlog, and fail when that is full.
_OPENING_AT_ONCE: Final = 64
#: A session that was silent from one look to the next is taken to have nothing to ask. Seconds.
_LOOK_S: Final = 0.1
#: How long a statement waits for a connection when all are lent. Seconds.
_PATIENCE_S: Final = 30.0
#: So many connections wait for the next statement for as long as they last; more are closed after so many seconds.
_KEPT: Final = 64
_SPARE_S: Final = 5.0
#: Forms of start-up whose greeting is remembered.
_GREETINGS: Final = 256

_NONE_FREE: Final = frames.error("FATAL", "53300", "Unable to accept connection, too many open connections.")
_NO_POSTGRES: Final = frames.error("FATAL", "57P03", "the cluster's PostgreSQL does not answer")


@final
@dataclass(frozen=True, slots=True)
class Greeting:
    """What PostgreSQL says to a new connection of one form."""

    messages: tuple[bytes, ...]  #: ParameterStatus and the like
    ready: bytes
    version: int  #: of the catalog when it was said


@final
class Lender:
    """The connections of one cluster's PostgreSQL. For the gateway's loop only."""

    def __init__(self, cluster: Cluster, most: int) -> None:
        self._cluster = cluster
        self._most = most
        self._free: OrderedDict[PooledBackend, float] = OrderedDict()  #: since when (the loop's time), oldest first
        self._lent: set[Loan] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._greetings: OrderedDict[Form, Greeting] = OrderedDict()
        self._opening = asyncio.Semaphore(_OPENING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.connections = 0  #: to PostgreSQL: lent, free, being opened

    @property
    def lent(self) -> int:
        """How many sessions have a connection."""
        return len(self._lent)

    # -- logins --------------------------------------------------------------------------------------------------

    async def greet(self, startup: Startup) -> Greeting:
        """Give what PostgreSQL says to a new connection; it is asked when the catalog may have changed its mind.

        Raises BackendRefused with PostgreSQL's answer, OSError when it doesn't answer.
        """
        form = startup.user, startup.settings
        greeting = self._greetings.get(form)
        if greeting is not None and greeting.version == self._cluster.catalog_version:
            return greeting
        version = self._cluster.catalog_version
        pooled = await self._obtain(startup, None, fresh=True)
        greeting = Greeting(tuple(pooled.greeting), pooled.ready, version)
        self._greetings[form] = greeting
        if len(self._greetings) > _GREETINGS:
            self._greetings.popitem(last=False)
        self._put(pooled)
        return greeting

    # -- lending -------------------------------------------------------------------------------------------------

    def lend(self, loan: Loan) -> None:
        """Give a loan its connection: at once where that is possible."""
        own = loan.previous
        if own is not None and own in self._free and own.owner is loan:
            del self._free[own]
            self._hand_over(loan, own)
            return
        task = asyncio.get_running_loop().create_task(self._provide(loan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _provide(self, loan: Loan) -> None:
        try:
            pooled = await self._obtain(loan.startup, loan)
            if pooled.owner is not loan:
                await self._make_ready(pooled, loan)
        except BackendRefused as refused:
            loan.failed(frames.report(frames.ERROR_RESPONSE, refused.fields))
        except TimeoutError:
            loan.failed(_NONE_FREE)
        except OSError:
            _LOG.exception("no connection to the PostgreSQL of cluster %s", self._cluster.id)
            loan.failed(_NO_POSTGRES)
        else:
            self._hand_over(loan, pooled)

    async def _make_ready(self, pooled: PooledBackend, loan: Loan) -> None:
        """Have a connection hold a session's prepared statements, and no other's."""
        if pooled.used:
            await pooled.forget_statements()
        made_by_client = loan.own_parses()
        prepared = loan.session.prepared_statements()
        if statements := [parse for name, parse in prepared.items() if name not in made_by_client]:
            await pooled.make_statements(statements)

    def _hand_over(self, loan: Loan, pooled: PooledBackend) -> None:
        if loan.is_closing() or loan.session.over:
            self._put(pooled)
            return
        pooled.used = True
        self._lent.add(loan)
        loan.arrived(pooled)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    async def _obtain(self, startup: Startup, loan: Loan | None, *, fresh: bool = False) -> PooledBackend:
        """Take a free connection, or open one; wait where there may be no more. Raises TimeoutError too."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                if not fresh and (pooled := self._take((startup.user, startup.settings), loan)) is not None:
                    return pooled
                if self.connections < self._most or self._close_oldest():
                    return await self._open(startup, loan, fresh=fresh)
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.append(waiting)
                try:
                    await waiting
                finally:
                    with contextlib.suppress(ValueError):
                        self._waiting.remove(waiting)

    def _take(self, form: Form, loan: Loan | None) -> PooledBackend | None:
        """Take a free connection of this form: the loan's own, else best one that nobody may come back to."""
        version = self._cluster.catalog_version
        found: PooledBackend | None = None
        for pooled in list(self._free):
            if pooled.version != version and (loan is None or pooled.owner is not loan):
                # A role of the same name may be another one by now. Its owner's session goes on all the same.
                if pooled.owner is None:
                    self._discard(pooled)
                continue
            if pooled.form != form:
                continue
            if pooled.owner is None or pooled.owner is loan:
                found = pooled
                break
            if found is None:
                found = pooled
        if found is not None:
            del self._free[found]
        return found

    async def _open(self, startup: Startup, loan: Loan | None, *, fresh: bool) -> PooledBackend:
        self.connections += 1
        try:
            async with self._opening:
                # One may have come back meanwhile.
                if not fresh and (pooled := self._take((startup.user, startup.settings), loan)) is not None:
                    self._ended()
                    return pooled
                version = self._cluster.catalog_version
                opened = await open_backend(self._cluster.socket_path, startup, _IMPATIENT)
        except BaseException:
            self._ended()
            raise
        return PooledBackend(opened, (startup.user, startup.settings), version, self._gone)

    # -- coming back ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take back what isn't needed, and close what nobody has needed for long."""
        self._timer = None
        for loan in list(self._lent):
            if loan.touched:
                loan.touched = False
            elif not loan.pinned and loan.session.idle:
                self._take_back(loan)
        now = asyncio.get_running_loop().time()
        while len(self._free) > _KEPT and now - next(iter(self._free.values())) > _SPARE_S:
            self._close_oldest()
        if (self._lent or len(self._free) > _KEPT) and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _take_back(self, loan: Loan) -> None:
        pooled = loan.detach()
        self._lent.discard(loan)
        if not loan.unsure:
            self._put(pooled)
            return
        loan.wait()
        task = asyncio.get_running_loop().create_task(self._take_back_if_clean(loan, pooled))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_back_if_clean(self, loan: Loan, pooled: PooledBackend) -> None:
        """Ask what the session's statements have left; with anything left, the session keeps its connection."""
        try:
            clean = await pooled.has_no_sequence_values()
        except OSError:
            loan.failed(_NO_POSTGRES)
            return
        loan.unsure = False
        if clean:
            self._put(pooled)
            if loan.looked_at():
                self.lend(loan)
        else:
            loan.pinned = True
            self._hand_over(loan, pooled)

    def release(self, loan: Loan) -> bool:
        """Take the connection of a session that ends; tell whether it could be taken."""
        pooled = loan.pooled
        if pooled is None or pooled.lost or loan.pinned or loan.unsure or not loan.session.idle or self._closed:
            return False
        loan.detach()
        self._lent.discard(loan)
        pooled.owner = None
        self._put(pooled)
        return True

    def forget(self, loan: Loan) -> None:
        """A session has ended."""
        self._lent.discard(loan)
        pooled = loan.pooled or loan.previous
        if pooled is not None and pooled.owner is loan:
            pooled.owner = None
            if loan.pooled is pooled:
                self._gone(pooled)  # it ended with the session

    def _put(self, pooled: PooledBackend) -> None:
        if pooled.lost:
            return
        if self._closed:
            pooled.close()
            return
        self._free[pooled] = asyncio.get_running_loop().time()
        self._wake()

    def _gone(self, pooled: PooledBackend) -> None:
        """A connection has ended."""
        if not pooled.counted:
            return
        pooled.counted = False
        self._free.pop(pooled, None)
        self._ended()

    def _ended(self) -> None:
        self.connections -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _close_oldest(self) -> bool:
        """Close the free connection that was longest of no use; tell whether there was one."""
        if not self._free:
            return False
        self._discard(next(iter(self._free)))
        return True

    def _discard(self, pooled: PooledBackend) -> None:
        pooled.close()
        self._gone(pooled)

    def close(self) -> None:
        """Close what is free, and lend nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        while self._close_oldest():
            pass
