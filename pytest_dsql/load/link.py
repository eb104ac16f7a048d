"""One libpq connection in the event loop: what is sent on it, and how its answers come back.

Asking is a coroutine: it posts what is to be sent and then waits by `yield`; the loop resumes it with what the server
answered - a libpq result, a list of them (pipeline), or a `Fault`. What is posted leaves with the loop's outbox; a
connection that breaks in sending answers with a `Fault` too. Plain and fast on purpose: see `Link._next_statement`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from psycopg import OperationalError
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from pytest_dsql.errors import TransactionError
from pytest_dsql.load.loop import READ, WRITE, Loop
from pytest_dsql.load.statements import (
    LAST_GOOD_STATUS,
    ROLLBACK,
    Answer,
    Fault,
    check_fault,
    dump,
    fault_of,
    is_aborted,
    raise_own_fault,
    statement_of,
)

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGconn, PGresult

Asking: TypeAlias = "Generator[None, Any, Any]"

#: What parameters usually come in.
_SEQUENCES: Final = (tuple, list)
#: More texts than this on one connection are not prepared: they are built by the transaction, not constant.
MAX_PREPARED: Final = 500

_CONN_BAD: Final = int(ConnStatus.BAD)
_IDLE: Final = int(TransactionStatus.IDLE)
_PIPELINE_SYNC: Final = int(ExecStatus.PIPELINE_SYNC)
_COPY: Final = frozenset({int(ExecStatus.COPY_IN), int(ExecStatus.COPY_OUT), int(ExecStatus.COPY_BOTH)})


@final
class Step:
    """A step of a transaction that is not simply sent: a first use, a pipeline, or a mistake."""

    __slots__ = ("step",)

    def __init__(self, step: Any) -> None:
        self.step: Final = step


@final
class Returned:
    """What a transaction returned."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Final = value


NOTHING: Final = Returned(None)


class Link:
    """A connection that comes and goes; its owner is the coroutine `_life` of a subclass."""

    __slots__ = (
        "_advance",
        "_arguments",
        "_call",
        "_collected",
        "_converter",
        "_fileno",
        "_gathering",
        "_idle",
        "_intended_ns",
        "_loop",
        "_name",
        "_names_made",
        "_opening",
        "_pgconn",
        "_pipelined",
        "_prepared",
        "_preparing",
        "_repeatable",
        "_send",
        "_single",
        "_sql",
        "begun",
    )

    _send: Any

    def __init__(self, loop: Loop, converter: Transformer, *, preparing: bool) -> None:
        self._loop = loop
        self._converter = converter
        self._preparing = preparing  #: prepare statements; not worth it on a connection of one transaction
        self._pgconn: PGconn | None = None
        self._fileno = -1
        self._prepared: dict[str, bytes] = {}
        self._names_made = 0  #: names of prepared statements so far: none is used twice, whatever became of it
        self._idle = True  #: nothing was asked of the server
        self._call: Callable[..., Any] | None = None  #: what the outbox is to call, to send
        self._arguments: tuple[Any, ...] = ()  #: and with what
        self._opening = False  #: what is sent next begins a request
        self._intended_ns = 0  #: when the request began: its first statement was sent; 0 while there is none
        self.begun = 0  #: requests begun
        self._advance: Callable[[Any], Any] | None = None  #: `send` of the transaction under way
        self._name = ""  #: the transaction's name
        self._sql = ""  #: its latest statement
        self._single = False  #: it has one statement and no block
        self._repeatable = True  #: it may yield another statement
        self._gathering = False  #: the answer under way is more than one result
        self._collected: list[PGresult] = []  #: its results so far
        self._pipelined = False  #: it ends with a pipeline's sync

    @property
    def pgconn(self) -> PGconn | None:
        """The libpq connection, None while there is none."""
        return self._pgconn

    def adopt(self, pgconn: PGconn) -> None:
        """Take over a connection."""
        pgconn.nonblocking = 1
        self._pgconn = pgconn
        self._prepared = {}
        self._fileno = pgconn.socket
        self._loop.add(self._fileno, READ, self.on_ready)

    def disconnect(self) -> None:
        """Close the connection, if there is one."""
        pgconn, self._pgconn = self._pgconn, None
        self._advance = None
        self._call = None
        self._forget_answer()
        if pgconn is not None:
            self._loop.remove(self._fileno)
            pgconn.finish()

    def on_ready(self, events: int) -> None:
        """Read what the server sent; `act` sees to it once the loop has read from every connection."""
        pgconn = self._pgconn
        if pgconn is None:  # closed by an earlier callback of the same round
            return
        try:
            if events & WRITE:
                self._flush(pgconn)
            pgconn.consume_input()
        except OperationalError as error:
            self._broke(error)
        else:
            self._loop.arrived.append(self)

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
        if self._advance is not None and result.status <= LAST_GOOD_STATUS:
            turn = self._next_statement(pgconn, Answer(result, self._converter))
            if turn is None:
                return
        if not self._idle:
            self._resume(turn)

    def _post(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have the outbox send by calling libpq."""
        self._call = call
        self._arguments = arguments
        self._loop.outbox.append(self)

    def dispatch(self) -> None:
        """Send what was posted, unless the connection was closed since."""
        pgconn = self._pgconn
        call = self._call
        if pgconn is None or call is None:
            return
        self._call = None
        if self._opening:
            self._open()
        try:
            call(*self._arguments)
            if pgconn.flush():
                self._flush(pgconn)
        except OperationalError as error:
            self._broke(error)

    def _open(self) -> None:
        """Let the request begin now."""
        self._opening = False
        self.begun += 1
        self._intended_ns = perf_counter_ns()

    def _broke(self, error: Exception) -> None:
        fault = self._lost(error)
        if not self._idle:
            self._resume(fault)

    def _next_statement(self, pgconn: PGconn, answer: Any) -> Any:
        """Let the transaction go on with an answer, and post the statement it yields.

        Returns None when a statement was posted; otherwise what the coroutine must see to: a `Step` that needs more
        than sending, or the transaction's `Returned` value.
        """
        # What ten thousand statements a second go through, so no coroutine is resumed between two of a transaction's
        # statements. Measured as Python's part, in a loop of its own: 1.8 us per statement, 4.2 us per transaction of
        # one; about twice that when every answer resumed the coroutine. Doing without it altogether gained nothing.
        advance = self._advance
        assert advance is not None
        try:
            step = advance(answer)
        except StopIteration as stop:
            self._advance = None
            return NOTHING if stop.value is None else Returned(stop.value)
        except (Exception, SystemExit) as error:
            raise_own_fault(self._name, error)
        if type(step) is tuple and len(step) == 2 and self._repeatable:
            sql, parameters = step
            if type(sql) is str and type(parameters) in _SEQUENCES:
                statement = self._prepared.get(sql)
                if statement is not None:
                    try:
                        values = dump(self._converter, parameters)
                    except Exception:
                        return Step(step)  # told in full where irregular steps are handled
                    self._sql = sql
                    self._call = pgconn.send_query_prepared
                    self._arguments = statement, values
                    self._loop.outbox.append(self)
                    return None
        return Step(step)

    def _resume(self, value: Any) -> None:
        """Go on with the coroutine."""
        try:
            self._send(value)
        except StopIteration:
            self._finished()

    def _finished(self) -> None:
        """Called when the coroutine has ended."""
        raise NotImplementedError

    def _collect(self, pgconn: PGconn, result: PGresult | None) -> Any:
        """Gather the results of an answer; None while it has not ended."""
        self._gathering = True
        collected = self._collected
        while True:
            if result is not None:
                if result.status == _PIPELINE_SYNC:
                    break
                collected.append(result)
                if result.status in _COPY:
                    break
            elif not self._pipelined:
                break
            if pgconn.is_busy():
                return None
            following = pgconn.get_result()
            if following is None and result is None:  # a pipeline that broke off, or has yet to go on
                return self._lost(OperationalError("the pipeline broke off")) if pgconn.status == _CONN_BAD else None
            result = following
        pipelined = self._pipelined
        self._forget_answer()
        return collected if pipelined else collected[-1] if collected else None

    def _forget_answer(self) -> None:
        self._collected = []
        self._pipelined = False
        self._gathering = False

    def _flush(self, pgconn: PGconn) -> None:
        """Send what libpq holds; watch for room in the socket while some of it is left."""
        left = pgconn.flush()
        self._loop.change(self._fileno, READ | WRITE if left else READ, self.on_ready)

    def _lost(self, error: Exception) -> Fault:
        self.disconnect()
        return Fault(None, str(error), lost=True)

    def _failed(self, result: PGresult | Fault) -> Fault:
        """Return the fault of a failed answer; closes the connection when it is gone."""
        if isinstance(result, Fault):
            return result
        # After FATAL the server closes the connection, whether or not its close has arrived.
        severity = result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)
        lost = self._pgconn is None or self._pgconn.status == _CONN_BAD or severity in (b"FATAL", b"PANIC")
        if lost:
            self.disconnect()
        return fault_of(result, lost=lost)

    def _irregular(self, pgconn: PGconn, step: Any) -> Asking:
        """Do a step that is not simply sent; returns its answer (a list of them for a list) or its fault."""
        if not self._repeatable or (self._single and type(step) is list):
            raise TransactionError(
                f"transaction {self._name} is declared block=False and must yield exactly one statement",
                transaction=self._name,
            )
        advance, self._advance = self._advance, None  # answers are for this coroutine meanwhile
        if type(step) is list:
            answer = yield from self._pipeline(pgconn, step)
        else:
            sql, values = statement_of(self._converter, step, self._name)
            self._sql = sql
            result = yield from self._run(pgconn, sql, values)
            if result.status > LAST_GOOD_STATUS:
                self._refuse_copy(result)
                answer = self._failed(result)
                check_fault(answer, sql, self._name)
            else:
                answer = Answer(result, self._converter)
        self._advance = advance
        return answer

    def _run(self, pgconn: PGconn, sql: str, values: Sequence[Any]) -> Asking:
        """Run a statement, preparing it first when it is new; in churn and beyond `MAX_PREPARED` texts, unprepared."""
        statement = self._prepared.get(sql)
        if statement is not None:
            self._post(pgconn.send_query_prepared, statement, values)
        elif not self._preparing or len(self._prepared) >= MAX_PREPARED:
            self._post(pgconn.send_query_params, sql.encode(), values)
        else:
            name = self._new_name()
            self._post(pgconn.send_prepare, name, sql.encode())
            result = yield
            if result.status > LAST_GOOD_STATUS:
                return result
            self._prepared[sql] = name
            self._post(pgconn.send_query_prepared, name, values)
        return (yield)

    def _new_name(self) -> bytes:
        self._names_made += 1
        return b"s%d" % self._names_made

    def _pipeline(self, pgconn: PGconn, steps: list[Any]) -> Asking:
        """Send independent statements in one go; returns their answers, or the first one's fault."""
        statements = [statement_of(self._converter, step, self._name) for step in steps]
        if not statements:
            return []
        pgconn.enter_pipeline_mode()
        preparing: list[str | None] = []  # what each expected result is: the text it prepares, or None
        fresh: dict[str, bytes] = {}
        for sql, values in statements:
            statement = self._prepared.get(sql) or fresh.get(sql)
            if statement is None and (not self._preparing or len(self._prepared) + len(fresh) >= MAX_PREPARED):
                pgconn.send_query_params(sql.encode(), values)
            else:
                if statement is None:
                    fresh[sql] = statement = self._new_name()
                    pgconn.send_prepare(statement, sql.encode())
                    preparing.append(sql)
                pgconn.send_query_prepared(statement, values)
            preparing.append(None)
        self._pipelined = self._gathering = True
        self._post(pgconn.pipeline_sync)
        results = yield
        if isinstance(results, Fault):
            return results
        if self._pgconn is not None and pgconn.status != _CONN_BAD:
            pgconn.exit_pipeline_mode()
        answers = []
        texts = iter(statements)
        sql = ""
        for result, prepares in zip(results, preparing, strict=False):
            if prepares is None:
                sql = next(texts)[0]
            if result.status > LAST_GOOD_STATUS and not is_aborted(result):
                self._sql = prepares or sql
                self._refuse_copy(result)
                fault = self._failed(result)
                check_fault(fault, self._sql, self._name)
                return fault
            if prepares is None:
                answers.append(Answer(result, self._converter))
            else:
                self._prepared[prepares] = fresh[prepares]
        if len(answers) != len(statements):
            return self._lost(OperationalError("the pipeline broke off"))
        return answers

    def _refuse_copy(self, result: PGresult | Fault) -> None:
        if result.status in _COPY:
            raise TransactionError(
                f"transaction {self._name}: COPY is no statement of a transaction: {self._sql!r}",
                transaction=self._name,
            )

    def _command(self, pgconn: PGconn, command: bytes) -> Asking:
        """Run a command without parameters; returns its fault or None."""
        self._post(pgconn.send_query, command)
        result = yield
        return self._failed(result) if result.status > LAST_GOOD_STATUS else None

    def _roll_back(self, fault: Fault) -> Asking:
        """Leave the failed transaction behind; returns the fault that was given."""
        pgconn = self._pgconn
        if pgconn is None or pgconn.transaction_status == _IDLE:
            return fault
        if (yield from self._command(pgconn, ROLLBACK)) is not None:
            self.disconnect()
        return fault
