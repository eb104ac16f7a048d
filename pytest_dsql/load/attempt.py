"""One attempt of a transaction on a connection: its statements between BEGIN and COMMIT, the usual ones at full speed.

Answers of the usual kind - statements that worked, prepared before - are acted on by `Attempts.act` itself, without
resuming the coroutine: it hears of the rest as a "turn", and takes the attempt to its end (`_see_through`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from psycopg import OperationalError

from pytest_dsql.errors import TransactionError
from pytest_dsql.load.link import Asking
from pytest_dsql.load.running import Running
from pytest_dsql.load.statements import (
    BEGIN,
    COMMIT,
    LAST_GOOD_STATUS,
    ROLLBACK,
    Answer,
    Fault,
    check_fault,
    dumper_of,
    raise_own_fault,
    statement_of,
)
from pytest_dsql.transaction import Context, Last, Rejected, Transaction

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGresult

    from pytest_dsql.load.loop import Loop

#: What parameters usually come in.
_SEQUENCES: Final = (tuple, list)
#: What the answer under way belongs to: to whatever the coroutine asked; to BEGIN; to a statement; to COMMIT.
_ASKED: Final = 0
_BEGUN: Final = 1
_STATED: Final = 2
_ENDED: Final = 3


@final
class Step:
    """A step of a transaction that is not simply sent: a first use, a pipeline, or a mistake."""

    __slots__ = ("step",)

    def __init__(self, step: Any) -> None:
        self.step: Final = step


@final
class Sign:
    """A turn that says something by being itself."""

    __slots__ = ()


#: The transaction has committed.
COMMITTED: Final = Sign()


class Attempts(Running):
    """A connection on which transactions are run."""

    __slots__ = (
        "_block",
        "_carrying",
        "_context",
        "_dump",
        "_function",
        "_pipelining",
        "_repeatable",
        "_stage",
        "_steps",
        "_transaction",
        "_unanswered_commit",
        "_unbegun",
        "_write",
    )

    _transaction: Transaction  #: of the request under way; what it consists of:
    _function: Callable[[Context], Any]
    _block: bool
    _write: bool

    def __init__(
        self, loop: Loop, converter: Transformer, context: Context, *, preparing: bool, pipelining: bool = False
    ) -> None:
        super().__init__(loop, converter, preparing=preparing)
        self._pipelining = pipelining  #: BEGIN goes with the first statements
        self._context = context
        self._dump = dumper_of(converter)
        self._carrying = False  #: requests that commit are noted, and followed by the next, without the coroutine
        self._stage = _ASKED
        self._steps: Any = None  #: the transaction under way: its generator
        self._repeatable = True  #: it may yield another statement
        self._unanswered_commit = False  #: a COMMIT of a write is under way
        self._unbegun = False  #: BEGIN is still to be sent

    def disconnect(self) -> None:
        """Close the connection, if there is one."""
        super().disconnect()
        self._stage = _ASKED

    def _turn_to(self, transaction: Transaction) -> None:
        """Make this the transaction that attempts run."""
        self._transaction = transaction
        self._function = transaction.function
        self._name = transaction.name
        self._block = transaction.block
        self._write = transaction.kind == "write"

    def _next_request(self) -> Any:
        """Note that the request has committed at its first attempt, and start the next; returns a turn."""
        raise NotImplementedError

    # What ten thousand statements a second go through: `act`, `_start`, `_go_on_with`. A turn that these return is
    # None when something was posted, so that an answer will follow, and otherwise what the coroutine must see to.
    # Measured as Python's part of a transaction of one statement, in a loop of its own without sockets (least of 300
    # runs, side by side): 4.3 us, of which the transaction's own code is 1.3; 5.4 us when each resumed the coroutine.

    def act(self) -> None:
        """Take the answer, if it is complete: to the transaction under way, or else to the coroutine."""
        pgconn = self._pgconn
        # A connection that replaced the one that was read from, in the same round, has nothing to tell yet: harmless.
        if pgconn is None or pgconn.is_busy():
            return
        result: Any = pgconn.get_result()
        # Almost always an answer is one result that ends in the same packet. Where it does not, get_result would block:
        # so is_busy is asked twice (0.1 us).
        if self._gathering or result is None or pgconn.is_busy() or pgconn.get_result() is not None:
            result = self._collect(pgconn, result)
            if result is None:
                return
        turn = result
        stage = self._stage
        if stage and result.status <= LAST_GOOD_STATUS:
            if stage == _STATED:
                turn = self._go_on_with(Answer(result, self._converter))
            elif stage == _BEGUN:
                turn = self._first_statement()
            else:
                self._unanswered_commit = False
                turn = COMMITTED
            if turn is COMMITTED and self._carrying:
                turn = self._next_request()
            if turn is None:
                return
        if not self._idle:
            self._resume(turn)

    def _start(self) -> Any:
        """Start an attempt; returns a turn."""
        if self._block:
            if self._pipelining:
                return self._first_with_begin()
            self._text = BEGIN
            self._values = None
            self._stage = _BEGUN
            self._loop.outbox.append(self)
            return None
        self._unanswered_commit = self._write
        return self._first_statement()

    def _first_with_begin(self) -> Any:
        """Start an attempt whose BEGIN goes with its first statements; returns a turn."""
        try:
            self._steps = steps = self._function(self._context)
            step = steps.send(None)
        except StopIteration as stop:
            # Nothing to go with: BEGIN and COMMIT alone, as without pipelining.
            step = Last() if stop.value is None else stop.value
            self._steps = None
        except (Exception, SystemExit) as error:
            raise_own_fault(self._name, error)
        self._repeatable = True
        self._unbegun = True
        return step if type(step) is Rejected else Step(step)

    def _first_statement(self) -> Any:
        # Attributes that are called are loaded first, here and below: the interpreter does that faster than in one go.
        function = self._function
        try:
            self._steps = function(self._context)
        except Exception as error:
            raise_own_fault(self._name, error)
        self._repeatable = True
        self._stage = _STATED
        return self._go_on_with(None)

    def _go_on_with(self, answer: Any) -> Any:
        """Let the transaction go on with an answer, and post the statement it yields; returns a turn."""
        steps = self._steps
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            if type(stop.value) is Rejected:
                return stop.value
            if not self._block:
                self._unanswered_commit = False
                return COMMITTED
            self._unanswered_commit = self._write
            self._text = COMMIT
            self._values = None
            self._stage = _ENDED
            self._loop.outbox.append(self)
            return None
        except (Exception, SystemExit) as error:
            raise_own_fault(self._name, error)
        if type(step) is tuple and len(step) == 2 and self._repeatable:
            sql, parameters = step
            if type(sql) is str and type(parameters) in _SEQUENCES:
                statement = self._prepared.get(sql)
                if statement is not None:
                    dump = self._dump
                    try:
                        self._values = dump(parameters)
                    except Exception:
                        return Step(step)  # told in full where irregular steps are handled
                    self._sql = sql
                    self._text = statement
                    self._repeatable = self._block
                    self._loop.outbox.append(self)
                    return None
        return Step(step)

    def _see_through(self, turn: Any) -> Asking:
        """Take the attempt under way to its end, from this turn on.

        Returns None when it committed, its `Rejected`, or the `Fault` that ended it.
        """
        try:
            while turn is not COMMITTED:
                if turn is None:
                    turn = yield
                elif type(turn) is Step:
                    turn = yield from self._irregular(turn.step)
                elif type(turn) is Rejected:
                    self._stage = _ASKED
                    self._unanswered_commit = False
                    pgconn = self._pgconn
                    assert pgconn is not None
                    if self._block and (yield from self._command(pgconn, ROLLBACK)) is not None:
                        self.disconnect()  # the server rolls back what it cannot be told to
                    return turn
                else:
                    return (yield from self._give_up(turn))
        except OperationalError as error:
            return self._lost(error)
        self._stage = _ASKED
        return None

    def _give_up(self, failed: PGresult | Fault) -> Asking:
        """End an attempt whose statement, BEGIN or COMMIT failed; returns the fault."""
        stage, self._stage = self._stage, _ASKED
        steps, self._steps = self._steps, None
        if stage == _STATED:
            self._refuse_copy(failed)
        fault = self._failed(failed)
        if stage == _STATED:
            check_fault(fault, self._sql, self._name)
        if steps is not None:
            _close(steps, self._name)
        return (yield from self._roll_back(fault))

    def _irregular(self, step: Any) -> Asking:
        """Do a step that is not simply sent, and go on; returns the turn that follows."""
        pgconn = self._pgconn
        assert pgconn is not None
        several = isinstance(step, list)
        if not self._repeatable or (not self._block and several):
            raise TransactionError(
                f"transaction {self._name} is declared block=False and must yield exactly one statement",
                transaction=self._name,
            )
        self._stage = _ASKED  # answers are for this coroutine meanwhile
        ends = type(step) is Last
        answer: Any
        if several or self._unbegun:
            begin, self._unbegun = BEGIN if self._unbegun else None, False
            self._unanswered_commit = ends and self._write
            answers = yield from self._pipeline(pgconn, step if several else [step], begin, COMMIT if ends else None)
            if type(answers) is Fault:
                return answers
            answer = answers if several else answers[0]
            if ends:
                self._unanswered_commit = False
                return COMMITTED if self._steps is None else self._end_of(answer)
        else:
            sql, values = statement_of(self._converter, step, self._name)
            self._sql = sql
            result = yield from self._run(pgconn, sql, values)
            if result.status > LAST_GOOD_STATUS:
                self._refuse_copy(result)
                fault = self._failed(result)
                check_fault(fault, sql, self._name)
                return fault
            answer = Answer(result, self._converter)
        self._stage = _STATED
        self._repeatable = self._block
        return self._go_on_with(answer)

    def _end_of(self, answers: Any) -> Any:
        """Give the transaction its last answers, after the COMMIT that went with its last statements."""
        try:
            self._steps.send(answers)
        except StopIteration as stop:
            if stop.value is None:
                return COMMITTED
        except (Exception, SystemExit) as error:
            raise_own_fault(self._name, error)
        raise TransactionError(
            f"transaction {self._name} goes on after its last statements: they were committed with `Last([...])`, so "
            "it can neither yield nor reject any more",
            transaction=self._name,
        )


def _close(steps: Any, transaction: str) -> None:
    """End a transaction whose attempt failed; no SQL error is thrown into it."""
    try:
        steps.close()
    except (Exception, SystemExit) as error:
        raise_own_fault(transaction, error)
