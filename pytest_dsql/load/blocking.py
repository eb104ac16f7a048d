"""Runs a transaction on an ordinary psycopg connection, with the meaning it has under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import psycopg
from psycopg.generators import execute
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from pytest_dsql.errors import RETRYABLE, TransactionError, UsageError
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.retry import RETRY, RetryPolicy, committed_after, is_unknown_end
from pytest_dsql.load.statements import (
    BEGIN,
    COMMIT,
    LAST_GOOD_STATUS,
    ROLLBACK,
    Answer,
    Fault,
    check_fault,
    dump,
    fault_of,
    new_converter,
    statement_of,
)
from pytest_dsql.transaction import Context, Last, Rejected, Transaction

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_COPY: Final = frozenset({int(ExecStatus.COPY_IN), int(ExecStatus.COPY_OUT), int(ExecStatus.COPY_BOTH)})


@final
@dataclass(frozen=True, slots=True)
class Executed:
    """How a transaction ended."""

    outcome: Outcome  #: OK, OK_RETRIED, REJECTED, FAILED or AMBIGUOUS
    attempts: int
    value: Any  #: what the transaction returned at its last attempt; None when it failed
    fault: Fault | None  #: why the last failed attempt failed, None when none did
    connection: psycopg.Connection[Any]  #: the connection to go on with; another one than was given after `reconnect`

    @property
    def committed(self) -> bool:
        """Whether the transaction has taken effect."""
        return self.outcome in (Outcome.OK, Outcome.OK_RETRIED)

    @property
    def rejection(self) -> Rejected | None:
        """The business "no", None when there was none."""
        return self.value if isinstance(self.value, Rejected) else None


def run_transaction(
    connection: psycopg.Connection[Any],
    transaction: Transaction,
    ctx: Context,
    *,
    retry: RetryPolicy = RETRY,
    reconnect: Callable[[], psycopg.Connection[Any]] | None = None,
) -> Executed:
    """Run one request of `transaction` on `connection`: BEGIN, statements, COMMIT, retries.

    Statements go to the server as they are, with `$1`, `$2`, ... whatever cursors the connection makes; a list is sent
    one by one. The connection must not be in a transaction; whether it is in autocommit mode does not matter.
    `reconnect` makes the connection for a retry or a receipt after one was lost; without it a lost connection is a
    failure, and a COMMIT lost with it AMBIGUOUS.

    Database errors are no exceptions here: see `Executed.outcome` and `.fault`. What the transaction's own code raises
    comes through as it is, after a ROLLBACK. Raises UsageError for a connection that is in a transaction or closed,
    TransactionError for a step that is no statement.
    """
    if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
        raise UsageError("run_transaction needs an open connection that is not in a transaction")
    ctx.next_request()
    return _Request(connection, transaction, ctx, retry, reconnect).run()


@final
class _Request:
    """One request on a blocking connection."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        transaction: Transaction,
        ctx: Context,
        retry: RetryPolicy,
        reconnect: Callable[[], psycopg.Connection[Any]] | None,
    ) -> None:
        self._connection = connection
        self._transaction = transaction
        self._ctx = ctx
        self._retry = retry
        self._reconnect = reconnect
        self._converter = new_converter()
        # A stream of its own: jitter must not change what the transaction draws.
        self._jitter = Random(ctx.operation_id)
        self._intended_ns = time.perf_counter_ns()
        self._attempts = 0
        self._unanswered_commit = False
        self._doubted = False

    def run(self) -> Executed:
        """Run attempts until one decides."""
        fault: Fault | None = None
        while True:
            self._attempts += 1
            self._unanswered_commit = False
            ended = self._attempt()
            if not isinstance(ended, Fault):
                if not isinstance(ended, Rejected):
                    return self._executed(committed_after(self._attempts), ended, fault)
                outcome = self._settle(Outcome.REJECTED) if self._doubted else Outcome.REJECTED
                return self._executed(outcome, ended, fault)
            fault = ended
            if self._unanswered_commit and is_unknown_end(fault.error_class):
                self._doubted = True
                outcome = self._settle(Outcome.FAILED)
                if outcome is not Outcome.FAILED:
                    return self._executed(outcome, None, fault)
            if fault.error_class not in RETRYABLE or not self._pause(self._attempts) or not self._connected():
                outcome = self._settle(Outcome.FAILED) if self._doubted else Outcome.FAILED
                return self._executed(outcome, None, fault)
            self._ctx.rewind()

    def _executed(self, outcome: Outcome, value: Any, fault: Fault | None) -> Executed:
        return Executed(outcome, self._attempts, value, fault, self._connection)

    def _pause(self, attempts_made: int) -> bool:
        """Wait before another attempt; False when there is none."""
        now_ns = time.perf_counter_ns()
        start_ns = self._retry.next_start_ns(
            attempts_made=attempts_made, intended_ns=self._intended_ns, now_ns=now_ns, jitter=self._jitter.random()
        )
        if start_ns is None:
            return False
        time.sleep((start_ns - now_ns) / 1e9)
        return True

    def _connected(self) -> bool:
        """Have a connection, a new one if the last was lost; False when there is none."""
        if not self._connection.closed:
            return True
        if self._reconnect is None:
            return False
        try:
            self._connection = self._reconnect()
        except (psycopg.OperationalError, OSError):
            return False
        return True

    def _attempt(self) -> Any:
        """Run the transaction once: what it returned, or the fault that ended the attempt."""
        transaction = self._transaction
        block = transaction.block
        changes = transaction.kind == "write"
        if block and (fault := self._command(BEGIN)) is not None:
            return fault
        steps = transaction(self._ctx)
        value: Any = None
        statements = 0
        ended = False
        try:
            while True:
                try:
                    step = steps.send(value)
                except StopIteration as stop:
                    returned = stop.value
                    break
                self._check_ended(ended)
                statements += 1
                ended = type(step) is Last
                if not block:
                    self._check_single(step, statements)
                    self._unanswered_commit = changes
                several = step if isinstance(step, list) else [step]
                answers = []
                for one in several:
                    answer = self._execute(one)
                    if isinstance(answer, Fault):
                        steps.close()
                        return self._rolled_back(answer)
                    answers.append(answer)
                value = answers if isinstance(step, list) else answers[0]
        except BaseException:
            self._roll_back()
            raise
        if isinstance(returned, Rejected):
            if ended:
                self._roll_back()
            self._check_ended(ended)
            if block:
                self._roll_back()
            return returned
        if block:
            self._unanswered_commit = changes
            if (fault := self._command(COMMIT)) is not None:
                return self._rolled_back(fault)
        return returned

    def _check_ended(self, ended: bool) -> None:
        name = self._transaction.name
        if ended:
            raise TransactionError(
                f"transaction {name} goes on after its last statements: they are committed with `Last([...])`, so it "
                "can neither yield nor reject any more",
                transaction=name,
            )

    def _check_single(self, step: Any, statements: int) -> None:
        name = self._transaction.name
        if statements > 1 or isinstance(step, list):
            raise TransactionError(
                f"transaction {name} is declared block=False and must yield exactly one statement", transaction=name
            )

    def _execute(self, step: Any) -> Answer | Fault:
        name = self._transaction.name
        sql, values = statement_of(self._converter, step, name)
        result = self._ask(sql.encode(), values)
        if isinstance(result, Fault):
            check_fault(result, sql, name)
            return result
        return Answer(result, self._converter)

    def _command(self, command: bytes) -> Fault | None:
        result = self._ask(command, None)
        return result if isinstance(result, Fault) else None

    def _ask(self, sql: bytes, values: Sequence[Any] | None) -> PGresult | Fault:
        """Send one statement as it is and wait for its answer, interruptible like every wait of psycopg's."""
        connection = self._connection
        pgconn = connection.pgconn
        try:
            with connection.lock:
                if values is None:
                    pgconn.send_query(sql)
                else:
                    pgconn.send_query_params(sql, values)
                results = connection.wait(execute(pgconn))
        except psycopg.OperationalError as error:
            connection.close()
            return Fault(None, str(error), lost=True)
        result: PGresult = results[-1]
        if result.status in _COPY:
            connection.close()
            name = self._transaction.name
            raise TransactionError(f"transaction {name}: COPY is no statement of a transaction", transaction=name)
        if result.status <= LAST_GOOD_STATUS:
            return result
        severity = result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)
        lost = pgconn.status == ConnStatus.BAD or severity in (b"FATAL", b"PANIC")
        if lost:
            connection.close()
        return fault_of(result, lost=lost)

    def _rolled_back(self, fault: Fault) -> Fault:
        self._roll_back()
        return fault

    def _roll_back(self) -> None:
        connection = self._connection
        if connection.closed or (status := connection.pgconn.transaction_status) == TransactionStatus.IDLE:
            return
        if status == TransactionStatus.ACTIVE or self._command(ROLLBACK) is not None:
            connection.close()  # the server rolls back what it cannot be told to

    def _settle(self, outcome: Outcome) -> Outcome:
        """Ask the receipt whether a doubtful COMMIT landed.

        Returns the outcome of a commit when it did, `outcome` when it did not, AMBIGUOUS when nobody can tell.
        """
        sql = self._ctx.receipt_sql
        if sql is None:
            return Outcome.AMBIGUOUS
        tries = 0
        while True:
            tries += 1
            if self._connected():
                result = self._ask(sql.encode(), dump(self._converter, [self._ctx.operation_id]))
                if not isinstance(result, Fault):
                    if result.ntuples == 0:
                        return outcome
                    return committed_after(self._attempts)
            if not self._pause(tries):
                return Outcome.AMBIGUOUS
