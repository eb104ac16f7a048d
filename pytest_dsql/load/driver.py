"""The driver: many sessions in one event loop, from their first connections to the end of the drain."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.connect.backoff import BACKOFF
from pytest_dsql.errors import ConnectionFailed
from pytest_dsql.load.arrivals import schedule_of
from pytest_dsql.load.connecting import Connecting, ConnectLog, Decided
from pytest_dsql.load.health import HealthMonitor, WorkerHealth, collect_all, collect_young
from pytest_dsql.load.memory import resident_bytes
from pytest_dsql.load.open_session import OpenSession, PooledSession
from pytest_dsql.load.plan import CONNECT_TIMEOUT_S, WorkerShare
from pytest_dsql.load.queue import AHEAD_NS, Queue
from pytest_dsql.load.recorder import Batch, Recorder
from pytest_dsql.load.retry import is_limit
from pytest_dsql.load.round_trips import round_trips
from pytest_dsql.load.session import Session
from pytest_dsql.load.statements import new_converter
from pytest_dsql.load.tasks import TaskQueue
from pytest_dsql.transaction import stream_seed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.load.loop import Loop

#: How often a worker reports what it has measured.
REPORT_S: Final = 0.25
#: After so many reports garbage that is no longer young is collected as well: a cell may go on for hours.
_ALL_TICKS: Final = 240
#: So many first connections are under way at once: thousands of handshakes together, each would wait for all others and
#: take longer than one may.
_AT_ONCE: Final = 256
#: How long first connections that meet a connection limit are tried again: so long, and the time that DSQL's rate of
#: 100 new connections a second takes for all of the cell's, twice.
_LIMIT_PATIENCE_S: Final = 10.0
_PATIENCE_PER_CONNECTION_S: Final = 0.02
#: `SELECT 1` this often, or for this long, gives the round-trip time.
_RTT_COUNT: Final = 50
_RTT_LIMIT_S: Final = 2.0
#: So many looks make up the time after which a connection that says nothing is lost.
_SILENT_LOOKS: Final = 4
#: The drain of a cell that was told to stop.
_STOP_DRAIN_S: Final = 1.0


@final
class Driver:
    """Drives one worker's share of a cell.

    The owner calls, in this order: `connect_all`, `measure_rtt` (one worker), `schedule` at once when it is told the
    start, and then lets the loop run until `finished` is called.
    """

    def __init__(
        self,
        share: WorkerShare,
        loop: Loop,
        tokens: TokenSource,
        *,
        report: Callable[[Batch], None],
        finished: Callable[[], None],
    ) -> None:
        self.share: Final = share
        self.plan: Final = share.plan
        self.loop: Final = loop
        self.retry: Final = share.plan.retry
        self.converter: Final = new_converter()
        self.churn: Final = share.plan.arrival.kind == "churn"
        self.index_of: Final = {one: index for index, one in enumerate(share.plan.mix)}
        self.health: Final = HealthMonitor(loop)
        self.connects: Final = ConnectLog()
        self.recorder = Recorder(share.plan.mix.transactions, window_start_ns=0, window_end_ns=0)
        self.end_ns = 0  #: no request begins, or in open loop arrives, at or after this time
        self._start_ns = 0
        self._window_start_ns = 0
        self._tokens = tokens
        self._jitter = random.Random(stream_seed(share.plan.seed, "connecting", share.first_slot))
        self._report = report
        self._finished = finished
        self.queue: Final = self._make_queue()
        slots = range(share.first_slot, share.first_slot + share.connections)
        self._sessions: Final[Sequence[Session]] = [self._make_session(slot) for slot in slots]
        self._active: set[Session] = set()
        self._over = False
        self._warming_up = False
        self._ticks = 0

    def _make_session(self, slot: int) -> Session:
        if isinstance(self.queue, TaskQueue):
            return PooledSession(self, slot, self.queue)
        return Session(self, slot) if self.queue is None else OpenSession(self, slot, self.queue)

    def _make_queue(self) -> Queue | TaskQueue | None:
        plan = self.plan
        weights = [plan.mix.weights[one.name] for one in plan.mix]
        if plan.is_pooled:
            seed = stream_seed(plan.seed, "mix", self.share.first_slot)
            over = self._no_more_requests
            return TaskQueue(self.loop, weights, tasks=self.share.tasks, seed=seed, ended=over)
        if not plan.is_open:
            return None
        self.loop.precise = True
        schedule = schedule_of(
            plan.arrival,
            weights,
            seed=plan.seed,
            length_s=plan.warmup_s + plan.window_s,
            worker=self.share.index,
            workers=plan.worker_count,
            until_s=AHEAD_NS / 1e9 if plan.is_long else None,
        )
        return Queue(self.loop, schedule)

    def _no_more_requests(self) -> bool:
        return self.loop.woke_ns >= self.end_ns

    # -- connections ---------------------------------------------------------------------------------------------

    def connect(self, decided: Decided) -> None:
        """Begin one connection attempt."""
        Connecting(
            self.loop,
            self.plan.endpoint,
            self._tokens,
            # Attempts of the warm-up are no part of what churn measures.
            ConnectLog() if self.churn and self._warming_up else self.connects,
            timeout_s=CONNECT_TIMEOUT_S,
            decided=decided,
        )

    def connect_all(self) -> None:
        """Make the sessions' first connections, many at once.

        Raises ConnectionFailed when one can't be made, CredentialsError when there is no token for them.
        """
        self._tokens.token()
        if self.churn:
            # One is made and closed, so that an endpoint that can't be reached fails here and not as a rate.
            self._one_connection().finish()
            return
        began_ns, cpu_ns, memory = perf_counter_ns(), process_time_ns(), resident_bytes()
        deadline_ns = began_ns + self._patience_ns
        failures: list[ConnectionFailed] = []
        missing = len(self._sessions)

        def dial(session: Session, refusals: int = 0) -> None:
            self.connect(lambda made: decided(session, made, refusals))

        def decided(session: Session, made: PGconn | ConnectionFailed, refusals: int) -> None:
            nonlocal missing
            if isinstance(made, ConnectionFailed):
                now_ns = perf_counter_ns()
                if is_limit(made.error_class) and now_ns < deadline_ns:
                    self.loop.at(now_ns + self._pause_ns(refusals + 1), lambda: dial(session, refusals + 1))
                    return
                failures.append(made)
                self.loop.stop()
                return
            session.adopt(made)
            missing -= 1
            if not missing:
                self.loop.stop()
            for following in islice(sessions, 1):
                dial(following)

        sessions = iter(self._sessions)
        for session in islice(sessions, _AT_ONCE):
            dial(session)
        while missing and not failures:
            self.loop.run()
        stats = self.connects.stats
        stats.elapsed_ns = perf_counter_ns() - began_ns
        stats.client_cpu_ns = process_time_ns() - cpu_ns
        grown = resident_bytes()
        stats.memory_bytes = None if grown is None or memory is None else max(0, grown - memory)
        if failures:
            raise failures[0]

    @property
    def _patience_ns(self) -> int:
        return int((_LIMIT_PATIENCE_S + _PATIENCE_PER_CONNECTION_S * self.plan.connections) * 1e9)

    def _pause_ns(self, refusals: int) -> int:
        return int(BACKOFF.pause_s(refusals, self._jitter.random()) * 1e9)

    def _one_connection(self) -> PGconn:
        """Make a connection outside of what is measured; a connection limit is waited out."""
        deadline_ns = perf_counter_ns() + self._patience_ns
        refusals = 0
        results: list[PGconn | ConnectionFailed] = []

        def decided(made: PGconn | ConnectionFailed) -> None:
            results.append(made)
            self.loop.stop()

        def dial() -> None:
            Connecting(
                self.loop, self.plan.endpoint, self._tokens, ConnectLog(), timeout_s=CONNECT_TIMEOUT_S, decided=decided
            )

        dial()
        while True:
            self.loop.run()
            if not results:
                continue
            result = results.pop()
            if not isinstance(result, ConnectionFailed):
                return result
            now_ns = perf_counter_ns()
            if not is_limit(result.error_class) or now_ns >= deadline_ns:
                raise result
            refusals += 1
            self.loop.at(now_ns + self._pause_ns(refusals), dial)

    def measure_rtt(self) -> list[int]:
        """Return the times of some `SELECT 1` on an idle connection, in nanoseconds."""
        pgconn = self._one_connection() if self.churn else self._sessions[0].pgconn
        if pgconn is None:
            return []
        times, sound = round_trips(pgconn, count=_RTT_COUNT, limit_s=_RTT_LIMIT_S)
        if self.churn:
            pgconn.finish()
        elif not sound:
            self._sessions[0].disconnect()  # its first request makes another
        return times

    @property
    def arrivals(self) -> int:
        """Requests begun, or in open loop arrived; warm-up included."""
        return sum(session.begun for session in self._sessions) if self.queue is None else self.queue.taken

    @property
    def worker_health(self) -> WorkerHealth | None:
        """How near the worker was to its limits; None when the window never opened."""
        health, queue = self.health.result, self.queue
        if health is None or queue is None:
            return health
        scheduled = not isinstance(queue, TaskQueue)
        return replace(
            health,
            own_lag_p999_ns=max(health.own_lag_p999_ns, queue.schedule_lag_p999_ns if scheduled else 0),
            connection_wait_p999_ns=queue.connection_wait_p999_ns,
            schedule_lag_p99_ns=queue.schedule_lag_p99_ns if scheduled else None,
            connection_wait_p99_ns=queue.connection_wait_p99_ns,
            connection_wait_share=queue.connection_wait_share,
        )

    # -- the cell ------------------------------------------------------------------------------------------------

    def schedule(self, start_ns: int) -> None:
        """Begin the warm-up at `start_ns`; the rest follows by the plan."""
        plan = self.plan
        window_start_ns = start_ns + int(plan.warmup_s * 1e9)
        self.end_ns = window_start_ns + int(plan.window_s * 1e9)
        self.recorder = Recorder(plan.mix.transactions, window_start_ns=window_start_ns, window_end_ns=self.end_ns)
        self._start_ns, self._window_start_ns = start_ns, window_start_ns
        self._active = set(self._sessions)
        self._warming_up = True
        self.loop.at(window_start_ns, self._open_window)  # first, for a cell without warm-up
        self.loop.at(start_ns, self._start)
        self.loop.at(self.end_ns, self._close_window)
        self.loop.at(self.end_ns + int(plan.drain_s * 1e9), self._end)
        self.loop.at(start_ns, self._tick)
        self.loop.at(start_ns, self._look_for_silence)

    def _start(self) -> None:
        if self.queue is not None:
            self.queue.begin(self._start_ns, self._window_start_ns, self.recorder)
        for session in self._sessions:
            session.start()

    def _open_window(self) -> None:
        self._warming_up = False
        self.health.open()

    def _close_window(self) -> None:
        self.health.close()

    def _tick(self) -> None:
        if self._over:
            return
        if self.queue is not None:
            self.queue.settle()
        self._report(self.recorder.take())
        self._ticks += 1
        if self._ticks % _ALL_TICKS:
            collect_young()
        else:
            collect_all()
        self.loop.at(perf_counter_ns() + int(REPORT_S * 1e9), self._tick)

    def _look_for_silence(self) -> None:
        """Give up connections whose answer is overdue: a peer that is gone without a word would hold them for good."""
        if self._over:
            return
        timeout_s = self.plan.answer_timeout_s
        for session in self._sessions:
            # The first of them may have come right after the request.
            if session.unheard_looks() > _SILENT_LOOKS:
                session.give_up_waiting(f"no answer for {timeout_s:g} s")
        self.loop.at(perf_counter_ns() + int(timeout_s * 1e9 / _SILENT_LOOKS), self._look_for_silence)

    def session_ended(self, session: Session) -> None:
        """Called by a session that has no more requests to begin."""
        self._active.discard(session)
        if not self._active:
            self._end()

    def stop(self) -> None:
        """End the cell early: no more requests, a short drain."""
        now_ns = perf_counter_ns()
        if now_ns < self.end_ns:
            self.end_ns = now_ns
            if self.queue is not None:
                self.queue.close(now_ns)
            self._close_window()
            self.loop.at(now_ns + int(_STOP_DRAIN_S * 1e9), self._end)

    def _end(self) -> None:
        """Cancel what is still in flight and finish."""
        if self._over:
            return
        self._over = True
        for session in self._sessions:
            session.cancel()
        if self.queue is not None:
            self.queue.cancel()
        self._close_window()
        self.connects.stats.tokens_signed = self._tokens.signed
        self._report(self.recorder.take())
        recorded = self.recorder.recorded
        assert self.arrivals == recorded, f"{self.arrivals} requests begun, {recorded} outcomes"
        self._finished()
