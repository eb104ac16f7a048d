"""A worker's part of a burst: connections requested at once, each used once and held until all are decided.

Or at a rate: each is then closed when it has answered.
"""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any, Final, final

from psycopg import OperationalError

from pytest_dsql.errors import ConnectionFailed
from pytest_dsql.load.connecting import Connecting, ConnectLog, unanswered
from pytest_dsql.load.health import runqueue_wait_ns
from pytest_dsql.load.loop import READ
from pytest_dsql.load.measurement import ConnectStats
from pytest_dsql.load.memory import resident_bytes
from pytest_dsql.load.plan import BurstShare
from pytest_dsql.load.statements import LAST_GOOD_STATUS, fault_of

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from pytest_dsql.connect.dialer import Phases
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.load.loop import Loop

#: Connections of one worker that may be under way at a given rate: a target that answers none of them must not use up
#: the worker's open files.
MOST_UNDER_WAY: Final = 2_000


@final
class HeldConnections:
    """Makes a share of a burst; `decided_ns` is when the last connection was there or refused."""

    def __init__(self, loop: Loop, share: BurstShare, tokens: TokenSource) -> None:
        self.decided_ns = 0
        self._loop = loop
        self._share = share
        self._tokens = tokens
        self._log = ConnectLog()
        self._undecided = share.connections
        self._held: set[PGconn] = set()
        self._asking: set[int] = set()  #: sockets whose SELECT 1 is under way
        self._cpu_ns = 0
        self._waited_ns: int | None = None
        self._memory: int | None = None
        self._start_ns = 0
        self._begun = 0
        self._under_way = 0

    def make(self, start_ns: int) -> ConnectStats:
        """Request all connections from `start_ns` on; return once each has answered `SELECT 1` or was refused."""
        self._start_ns = start_ns
        self._loop.at(start_ns, self._begin)
        while self._undecided:
            self._loop.run()
        stats = self._log.stats
        stats.client_cpu_ns = process_time_ns() - self._cpu_ns
        waited_ns = runqueue_wait_ns()
        if waited_ns is not None and self._waited_ns is not None:
            stats.client_waited_ns = waited_ns - self._waited_ns
        memory = resident_bytes()
        if self._share.every_ns is None and memory is not None and self._memory is not None:
            stats.memory_bytes = max(0, memory - self._memory)
        stats.tokens_signed = self._tokens.signed
        return stats

    def close(self) -> None:
        """Let go of the connections."""
        for pgconn in self._held:
            with suppress(OperationalError):
                pgconn.finish()

    def _begin(self) -> None:
        self._cpu_ns = process_time_ns()
        self._waited_ns = runqueue_wait_ns()
        self._memory = resident_bytes()
        if self._share.every_ns is not None:
            self._begin_due()
            return
        for _ in range(self._share.connections):
            self._connect()

    def _begin_due(self) -> None:
        """Begin what is due at the rate that was asked for; what would be too many at once is left out."""
        share = self._share
        assert share.every_ns is not None
        now_ns = perf_counter_ns()
        while self._begun < share.connections:
            due_ns = self._start_ns + share.first_ns + self._begun * share.every_ns
            if due_ns > now_ns:
                self._loop.at(due_ns, self._begin_due)
                return
            self._begun += 1
            if self._under_way < MOST_UNDER_WAY:
                self._connect()
            else:
                self._count_down()
                self._under_way += 1  # it was not

    def _connect(self) -> None:
        self._under_way += 1
        connecting = Connecting(
            self._loop,
            self._share.endpoint,
            self._tokens,
            self._log,
            timeout_s=self._share.timeout_s,
            decided=lambda made: self._decided(made, connecting),
            on_trial=True,
        )

    def _decided(self, made: PGconn | ConnectionFailed, connecting: Connecting) -> None:
        if isinstance(made, ConnectionFailed):
            self._count_down()
            return
        made.nonblocking = 1
        self._held.add(made)
        try:
            made.send_query(b"SELECT 1")
            made.flush()
        except OperationalError as error:
            self._broke(error)
            return
        fileno = made.socket
        self._asking.add(fileno)
        phases = connecting.phases
        self._loop.add(fileno, READ, lambda _events: self._answered(made, fileno, phases))
        timeout_s = self._share.timeout_s
        self._loop.at(perf_counter_ns() + int(timeout_s * 1e9), lambda: self._time_out(fileno))

    def _time_out(self, fileno: int) -> None:
        if fileno in self._asking:
            self._forget(fileno)
            self._broke(TimeoutError(f"no answer after {self._share.timeout_s:g} s"))

    def _forget(self, fileno: int) -> None:
        self._asking.discard(fileno)
        self._loop.remove(fileno)

    def _answered(self, pgconn: PGconn, fileno: int, phases: Phases) -> None:
        result: Any = None
        try:
            pgconn.consume_input()
            if pgconn.is_busy():
                return
            result = pgconn.get_result()
            while not pgconn.is_busy() and pgconn.get_result() is not None:
                pass
        except OperationalError as error:
            self._forget(fileno)
            self._broke(error)
            return
        self._forget(fileno)
        if result is None or result.status > LAST_GOOD_STATUS:
            self._broke(OperationalError(fault_of(result).message if result is not None else "no answer"))
        else:
            self._log.made(phases)
            if self._share.every_ns is not None:
                self._held.discard(pgconn)
                pgconn.finish()
            self._count_down()

    def _broke(self, error: Exception) -> None:
        self._log.refused(unanswered(error))
        self._count_down()

    def _count_down(self) -> None:
        self._undecided -= 1
        self._under_way -= 1
        self.decided_ns = perf_counter_ns()
        if not self._undecided:
            self._loop.stop()
