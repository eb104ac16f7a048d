"""One libpq connection in the event loop: what is sent on it, and how its answers come back.

Asking is a coroutine: it posts what is to be sent and then waits by `yield`; the loop resumes it with what the server
answered - a libpq result, a list of them (pipeline), or a `Fault`. What is posted leaves with the loop's outbox; a
connection that breaks in sending answers with a `Fault` too. A subclass may take answers before the coroutine gets them
(`attempt`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from psycopg import OperationalError
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from pytest_dsql.load.loop import READ, WRITE, Loop
from pytest_dsql.load.statements import LAST_GOOD_STATUS, ROLLBACK, Fault, fault_of

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGconn, PGresult

Asking: TypeAlias = "Generator[None, Any, Any]"

CONN_BAD: Final = int(ConnStatus.BAD)
_IDLE: Final = int(TransactionStatus.IDLE)
_PIPELINE_SYNC: Final = int(ExecStatus.PIPELINE_SYNC)
COPY: Final = frozenset({int(ExecStatus.COPY_IN), int(ExecStatus.COPY_OUT), int(ExecStatus.COPY_BOTH)})


class Link:
    """A connection that comes and goes; its owner is the coroutine `_life` of a subclass."""

    __slots__ = (
        "_arguments",
        "_call",
        "_collected",
        "_converter",
        "_fileno",
        "_gathering",
        "_idle",
        "_intended_ns",
        "_loop",
        "_opening",
        "_pgconn",
        "_pipelined",
        "_prepared",
        "_preparing",
        "_send",
        "_text",
        "_unheard",
        "_values",
        "begun",
        "heard",
    )

    _send: Any

    def __init__(self, loop: Loop, converter: Transformer, *, preparing: bool) -> None:
        self._loop = loop
        self._converter = converter
        self._preparing = preparing  #: prepare statements; not worth it on a connection of one transaction
        self._pgconn: PGconn | None = None
        self._fileno = -1
        self._prepared: dict[str, bytes] = {}
        self._idle = True  #: nothing was asked of the server
        self._text: bytes | None = None  #: the prepared statement, or the command, that the outbox is to send
        self._values: Sequence[Any] | None = None  #: its dumped parameters; None: it is a command
        self._call: Callable[..., Any] | None = None  #: what the outbox is to call instead, to send
        self._arguments: tuple[Any, ...] = ()  #: and with what
        self._opening = False  #: what is sent next begins a request
        self._intended_ns = 0  #: when the request began: its first statement was sent; 0 while there is none
        self.begun = 0  #: requests begun
        self._gathering = False  #: the answer under way is more than one result
        self._collected: list[PGresult] = []  #: its results so far
        self._pipelined = False  #: it ends with a pipeline's sync
        self.heard = True  #: the server has said something since the last look for silence
        self._unheard = 0  #: looks in a row that found an answer due and nothing said

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
        self._text = None
        self._call = None
        self._forget_answer()
        if pgconn is not None:
            self._loop.remove(self._fileno)
            pgconn.finish()

    def on_ready(self, events: int) -> None:
        """Read what the server sent; `act` sees to it once the loop has read from every connection."""
        pgconn = self._pgconn
        assert pgconn is not None
        try:
            if events != READ:
                self._flush(pgconn)
            pgconn.consume_input()
        except OperationalError as error:
            self._broke(error)
        else:
            self.heard = True
            self._loop.arrived.append(self)

    def unheard_looks(self) -> int:
        """Count the looks, this one included, that have found an answer due and nothing said since the look before."""
        if self.heard or self._idle or self._pgconn is None:
            self._unheard = 0
        else:
            self._unheard += 1
        self.heard = False
        return self._unheard

    def give_up_waiting(self, reason: str) -> None:
        """Take the connection for lost: no answer came. Its request goes on as after any lost connection."""
        self._unheard = 0
        self._broke(OperationalError(reason))

    def act(self) -> None:
        """Take the answer, if it is complete, to the coroutine."""
        pgconn = self._pgconn
        # A connection that replaced the one that was read from, in the same round, has nothing to tell yet: harmless.
        if pgconn is None or pgconn.is_busy():
            return
        result = self._collect(pgconn, pgconn.get_result())
        if result is not None and not self._idle:
            self._resume(result)

    def _post(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have the outbox send by calling libpq."""
        self._call = call
        self._arguments = arguments
        self._loop.outbox.append(self)

    def dispatch(self) -> None:
        """Send what was posted, unless the connection was closed since."""
        pgconn = self._pgconn
        text = self._text
        if pgconn is None or (text is None and self._call is None):
            return
        if self._opening:
            self._open()
        try:
            if text is None:
                call, self._call = self._call, None
                assert call is not None
                call(*self._arguments)
            else:
                self._text = None
                values = self._values
                if values is None:
                    pgconn.send_query(text)
                else:
                    pgconn.send_query_prepared(text, values)
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
                if result.status in COPY:
                    break
            elif not self._pipelined:
                break
            if pgconn.is_busy():
                return None
            following = pgconn.get_result()
            if following is None and result is None:  # a pipeline that broke off, or has yet to go on
                return self._lost(OperationalError("the pipeline broke off")) if pgconn.status == CONN_BAD else None
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
        lost = self._pgconn is None or self._pgconn.status == CONN_BAD or severity in (b"FATAL", b"PANIC")
        if lost:
            self.disconnect()
        return fault_of(result, lost=lost)

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
