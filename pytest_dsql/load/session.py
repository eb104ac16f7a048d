"""One connection slot of the generator: the requests it carries, one after the other, their retries and receipts.

A session is a coroutine of the loop. Requests of the usual course pass it by (see `attempt`): it begins the first, and
hears of what is out of the ordinary.
"""

from __future__ import annotations

import random
from array import array
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.errors import RETRYABLE, ConnectionFailed, TransactionError
from pytest_dsql.load.attempt import Attempts, Sign
from pytest_dsql.load.link import Asking
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.retry import committed_after, is_limit, is_unknown_end
from pytest_dsql.load.statements import LAST_GOOD_STATUS, Fault, dump
from pytest_dsql.transaction import Context, Rejected, Transaction, stream_seed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from pytest_dsql.load.driver import Driver

#: How long a connection whose replacement could not be made is kept before the next try.
_REPLACE_AGAIN_NS: Final = 30_000_000_000

#: A turn: before the next request there is something to see to, if there is a next.
_DUE: Final = Sign()


class Session(Attempts):
    """Closed loop: draws requests one after the other, runs them, notes their ends."""

    __slots__ = (
        "_attempts",
        "_backoff",
        "_backoff_ns",
        "_choice",
        "_doubted",
        "_driver",
        "_ends",
        "_index",
        "_life",
        "_lifetimes",
        "_replace_at_ns",
        "_several",
        "_starts",
        "_waited_ns",
        "_waits",
    )

    _starts: array[int]
    _ends: array[int]
    _waits: array[int]

    def __init__(self, driver: Driver, slot: int) -> None:
        plan = driver.plan
        context = Context(seed=plan.seed, run=plan.run, slot=slot, scale=plan.scale, access=plan.access)
        super().__init__(driver.loop, driver.converter, context, preparing=not driver.churn, pipelining=plan.pipeline)
        self._driver = driver
        self._several = len(plan.mix.transactions) > 1
        self._choice = random.Random(stream_seed(plan.seed, "mix", slot))
        self._backoff = random.Random(stream_seed(plan.seed, "backoff", slot))
        self._lifetimes = random.Random(stream_seed(plan.seed, "lifetime", slot))
        self._replace_at_ns = 0
        self._index = 0  #: the request's transaction in the mix
        self._attempts = 1
        self._backoff_ns = 0
        self._waited_ns = 0  #: from the intended start to the first statement; in closed loop they are the same
        self._doubted = False  #: a COMMIT of the request was lost once
        self._life: Asking = self._requests()
        self._send = self._life.send

    def adopt(self, pgconn: PGconn) -> None:
        """Take over a connection, until it comes of age."""
        super().adopt(pgconn)
        lifetime_ns = self._driver.plan.connection_lifetime_s * 1e9
        self._replace_at_ns = perf_counter_ns() + int(lifetime_ns * self._lifetimes.uniform(0.9, 1.1))

    def start(self) -> None:
        """Send the first request."""
        self._resume(None)

    def _finished(self) -> None:
        self._driver.session_ended(self)

    def _requests(self) -> Asking:
        driver = self._driver
        loop = self._loop
        self._turn_to(driver.plan.mix.transactions[0])
        self._idle = False
        while loop.woke_ns < driver.end_ns:
            if loop.woke_ns >= self._replace_at_ns and self._pgconn is not None:
                yield from self._replace()
            self._draw()
            if self._pgconn is None:
                self._open()
                ended = yield from self._attempt()
            else:
                turn = self._start()
                if turn is None:
                    self._carrying = self._preparing  # in churn, every request ends with the connection
                    turn = yield
                    self._carrying = False
                    if turn is _DUE:
                        continue
                ended = yield from self._see_through(turn)
            if self._opening:
                self._nothing_sent(ended)
            if ended is None:
                self._starts.append(self._intended_ns)
                self._ends.append(loop.woke_ns)
                self._intended_ns = 0
            else:
                yield from self._go_on(ended)
            if not self._preparing:
                self.disconnect()
        self._idle = True

    def _turn_to(self, transaction: Transaction) -> None:
        super()._turn_to(transaction)
        self._index = index = self._driver.index_of[transaction]
        self._starts, self._ends, self._waits = self._driver.recorder.clean[index]

    def _draw(self) -> None:
        """Draw the next request."""
        if self._several:
            transaction = self._driver.plan.mix.choose(self._choice)
            if transaction is not self._transaction:
                self._turn_to(transaction)
        self._context.next_request()
        self._opening = True

    def _next_request(self) -> Any:
        woke_ns = self._loop.woke_ns
        self._starts.append(self._intended_ns)
        self._ends.append(woke_ns)
        self._intended_ns = 0
        if woke_ns >= self._replace_at_ns or woke_ns >= self._driver.end_ns:
            self._stage = 0
            return _DUE
        self._draw()
        return self._start()

    def _nothing_sent(self, ended: Rejected | Fault | None) -> None:
        """See to a request that ended before its first statement was sent."""
        if type(ended) is not Fault:
            raise TransactionError(
                f"transaction {self._name} is declared block=False and must yield exactly one statement",
                transaction=self._name,
            )
        self._open()

    def _go_on(self, ended: Rejected | Fault) -> Asking:
        """Take a request whose first attempt did not commit to its end: pauses, further attempts, receipts."""
        driver = self._driver
        recorder = driver.recorder
        index = self._index
        intended_ns = self._intended_ns
        self._attempts = 1
        refusals = 0  #: of connections, by a limit
        while True:
            if type(ended) is Rejected:
                outcome = Outcome.REJECTED
                if self._doubted:
                    outcome = yield from self._settle(outcome)
                break
            fault: Fault = ended
            recorder.error(index, intended_ns, fault.key, fault.message)
            if self._unanswered_commit and is_unknown_end(fault.error_class):
                self._doubted = True
                outcome = yield from self._settle(Outcome.FAILED)
                if outcome is not Outcome.FAILED:
                    break
            self._unanswered_commit = False
            now_ns = perf_counter_ns()
            resume_ns = None
            if self._pgconn is None and is_limit(fault.error_class):
                refusals += 1
                resume_ns = driver.retry.next_connect_ns(
                    refusals=refusals, intended_ns=intended_ns, now_ns=now_ns, jitter=self._backoff.random()
                )
            elif fault.error_class in RETRYABLE:
                resume_ns = driver.retry.next_start_ns(
                    attempts_made=self._attempts - refusals,
                    intended_ns=intended_ns,
                    now_ns=now_ns,
                    jitter=self._backoff.random(),
                )
            if resume_ns is None:
                outcome = Outcome.FAILED
                if self._doubted:
                    outcome = yield from self._settle(outcome)
                break
            yield from self._pause_until(resume_ns)
            self._backoff_ns += perf_counter_ns() - now_ns
            self._context.rewind()
            self._attempts += 1
            ended = yield from self._attempt()
            if ended is None:
                outcome = Outcome.OK_RETRIED
                break
        recorder.ended(
            index,
            outcome,
            intended_ns=intended_ns,
            end_ns=max(self._loop.woke_ns, intended_ns + self._waited_ns + self._backoff_ns),
            wait_ns=self._waited_ns,
            backoff_ns=self._backoff_ns,
            attempts=self._attempts,
            in_doubt=outcome is Outcome.AMBIGUOUS,
        )
        self._forget_request()

    def _forget_request(self) -> None:
        self._intended_ns = 0
        self._waited_ns = 0
        self._attempts = 1
        self._backoff_ns = 0
        self._doubted = False
        self._unanswered_commit = False

    def _attempt(self) -> Asking:
        """Run the transaction once, connecting first if need be; ends as `_see_through` does."""
        if self._pgconn is None:
            fault = yield from self._connect()
            if fault is not None:
                return fault
        return (yield from self._see_through(self._start()))

    def _connect(self) -> Asking:
        """Make the connection; returns None, or why there is none."""
        self._driver.connect(self._resume)
        made = yield
        if isinstance(made, ConnectionFailed):
            return Fault(made.sqlstate, str(made), lost=False)
        self.adopt(made)
        return None

    def _replace(self) -> Asking:
        """Replace a connection that has come of age; keep it a little longer when there is no other."""
        self._idle = True  # the old connection may speak up
        self._driver.connect(self._resume)
        made = yield
        self._idle = False
        if isinstance(made, ConnectionFailed):
            self._replace_at_ns = perf_counter_ns() + _REPLACE_AGAIN_NS
        else:
            self.disconnect()
            self.adopt(made)

    def _pause_until(self, when_ns: int) -> Asking:
        self._idle = True
        self._loop.at(when_ns, self.start)
        yield
        self._idle = False

    def _settle(self, outcome: Outcome) -> Asking:
        """Ask the receipt whether a doubtful COMMIT landed.

        Returns the outcome of a commit when it did, `outcome` when it did not, AMBIGUOUS when nobody can tell.
        """
        sql = self._driver.plan.run.receipt_sql
        if sql is None:
            return Outcome.AMBIGUOUS
        operation = dump(self._converter, [self._context.operation_id])
        tries = 0
        while True:
            tries += 1
            if self._pgconn is None:
                fault = yield from self._connect()
            else:
                fault = None
            pgconn = self._pgconn
            if fault is None and pgconn is not None:
                self._post(pgconn.send_query_params, sql.encode(), operation)
                result = yield
                if result.status <= LAST_GOOD_STATUS:
                    if result.ntuples == 0:
                        return outcome
                    return committed_after(self._attempts)
                self._failed(result)
            now_ns = perf_counter_ns()
            resume_ns = self._driver.retry.next_start_ns(
                attempts_made=tries, intended_ns=self._intended_ns, now_ns=now_ns, jitter=self._backoff.random()
            )
            if resume_ns is None:
                return Outcome.AMBIGUOUS
            yield from self._pause_until(resume_ns)
            self._backoff_ns += perf_counter_ns() - now_ns

    def cancel(self) -> None:
        """End the session at once: a request in flight is cancelled, its latency counted up to now."""
        if self._intended_ns:
            self._driver.recorder.ended(
                self._index,
                Outcome.CANCELLED,
                intended_ns=self._intended_ns,
                end_ns=perf_counter_ns(),
                wait_ns=self._waited_ns,
                backoff_ns=self._backoff_ns,
                attempts=self._attempts,
                in_doubt=self._unanswered_commit or self._doubted,
            )
            self._forget_request()
        self._life.close()
        self._steps = None
        self.disconnect()
