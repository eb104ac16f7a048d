"""Statements as libpq takes them, results as transactions see them: parameters dumped, rows decoded, faults named."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import psycopg
from psycopg import adapt
from psycopg.pq import DiagnosticField, ExecStatus

from pytest_dsql.errors import ErrorClass, TransactionError, classify
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGresult

BEGIN: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ"
COMMIT: Final = b"COMMIT"
ROLLBACK: Final = b"ROLLBACK"

#: `ExecStatus` values up to this one are answers of statements that worked (empty, command, tuples).
LAST_GOOD_STATUS: Final = int(ExecStatus.TUPLES_OK)
_FATAL_ERROR: Final = int(ExecStatus.FATAL_ERROR)
_PIPELINE_ABORTED: Final = int(ExecStatus.PIPELINE_ABORTED)
#: Packages that psycopg's own dumpers are of.
_PSYCOPG: Final = frozenset({"psycopg", "psycopg_binary", "psycopg_c"})
#: SQLSTATE of a statement with the wrong number of parameters, among other faults of the caller.
PROTOCOL_VIOLATION: Final = "08P01"


@final
class Answer:
    """What a statement answered; see `pytest_dsql.transaction.Result`."""

    __slots__ = ("_converter", "_pgresult", "_rows")

    def __init__(self, pgresult: PGresult, converter: Transformer) -> None:
        self._pgresult = pgresult
        self._converter = converter
        self._rows: Sequence[tuple[Any, ...]] | None = None

    @property
    def rowcount(self) -> int:
        """Rows selected or changed, from the command tag; 0 when the tag has none."""
        return self._pgresult.command_tuples or 0

    @property
    def rows(self) -> Sequence[tuple[Any, ...]]:
        """The rows, decoded when first asked for."""
        rows = self._rows
        if rows is None:
            count = self._pgresult.ntuples
            if count:
                self._converter.set_pgresult(self._pgresult)
                rows = self._converter.load_rows(0, count, tuple)
            else:
                rows = []
            self._rows = rows
        return rows

    def one(self) -> tuple[Any, ...] | None:
        """The first row, or None when there is none."""
        rows = self.rows
        return rows[0] if rows else None

    def __repr__(self) -> str:
        return f"<answer of {self.rowcount} rows>"


@final
class Fault:
    """A statement or a connection that failed. `status` lets it stand where a libpq result is expected."""

    __slots__ = ("error_class", "lost", "message", "sqlstate", "status")

    def __init__(self, sqlstate: str | None, message: str, *, lost: bool) -> None:
        self.status: Final = _FATAL_ERROR
        self.sqlstate: Final = sqlstate
        self.message: Final = mask(" ".join(message.split()))
        self.lost: Final = lost  #: the connection is gone
        self.error_class: Final = ErrorClass.CONNECTION if lost else classify(sqlstate, message)

    @property
    def key(self) -> str:
        """What the attempt is counted under: its SQLSTATE, or `connection`."""
        return self.sqlstate or "connection"

    def __repr__(self) -> str:
        return f"<fault {self.key}: {self.message}>"


def fault_of(result: PGresult, *, lost: bool = False) -> Fault:
    """Return the fault that a failed libpq result reports."""
    sqlstate = result.error_field(DiagnosticField.SQLSTATE)
    primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
    text = primary if primary is not None else result.error_message
    if not text and result.status != _FATAL_ERROR:
        text = f"unexpected answer: {ExecStatus(result.status).name}".encode()
    return Fault(sqlstate.decode() if sqlstate else None, text.decode("utf-8", "replace"), lost=lost)


def is_aborted(result: PGresult | Fault) -> bool:
    """Tell whether a statement of a pipeline did not run because an earlier one failed."""
    return result.status == _PIPELINE_ABORTED


@final
class _BytesAsHex(adapt.Dumper):
    """Bytes in hexadecimal: psycopg's own dumper would need a connection to know how to escape them."""

    oid = psycopg.adapters.types["bytea"].oid

    def dump(self, obj: Any) -> bytes:
        return b"\\x" + bytes(obj).hex().encode()


def new_converter() -> Transformer:
    """Return psycopg's converter between Python's values and PostgreSQL's, with its global adapters. For one thread."""
    adapters = adapt.AdaptersMap(psycopg.adapters)
    for kind in (bytes, bytearray, memoryview):
        adapters.register_dumper(kind, _BytesAsHex)
    transformer: Any = adapt.Transformer
    converter: Transformer = transformer(adapters)
    return converter


_FORMATS: Final = tuple([adapt.PyFormat.TEXT] * count for count in range(32))


def dump(converter: Transformer, parameters: Sequence[Any]) -> Sequence[Any]:
    """Return `parameters` in PostgreSQL's text format; the server infers the types of `$1`, `$2`, ...

    Raises a psycopg error, or a registered dumper's own, for a value that cannot be sent.
    """
    count = len(parameters)
    return converter.dump_sequence(parameters, _FORMATS[count] if count < 32 else [adapt.PyFormat.TEXT] * count)


def dumper_of(converter: Transformer) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what does the same as `dump` with this converter, faster where it can.

    Integers and strings are written here, as psycopg would; not so when somebody registered other dumpers for them.
    """
    dump_sequence = partial(dump, converter)
    for kind in (int, str):
        dumper = converter.adapters.get_dumper(kind, adapt.PyFormat.TEXT)
        if dumper.__module__.partition(".")[0] not in _PSYCOPG:
            return dump_sequence

    # Measured in a loop of its own: 0.39 us for one int in place of 0.62.
    def quick(parameters: Sequence[Any]) -> Sequence[Any]:
        values: list[bytes | None] = []
        for one in parameters:
            kind = type(one)
            if kind is int:
                values.append(b"%d" % one)
            elif kind is str and "\0" not in one:
                values.append(one.encode())
            elif one is None:
                values.append(None)
            else:
                return dump_sequence(parameters)
        return values

    return quick


def statement_of(converter: Transformer, step: Any, transaction: str) -> tuple[str, Sequence[Any]]:
    """Return SQL and dumped parameters of one yielded statement. Raises TransactionError for anything else."""
    if type(step) is str:
        return step, ()
    if type(step) is tuple and len(step) == 2 and type(step[0]) is str:
        sql, parameters = step
        if isinstance(parameters, (tuple, list)):
            try:
                return sql, dump(converter, parameters)
            except Exception as error:
                raise TransactionError(
                    f"transaction {transaction}: a parameter of {_excerpt(sql)} cannot be sent: {mask(str(error))}",
                    transaction=transaction,
                ) from error
        raise TransactionError(
            f"transaction {transaction}: the parameters of {_excerpt(sql)} must be a tuple or list, "
            f"not {type(parameters).__name__}",
            transaction=transaction,
        )
    raise TransactionError(
        f"transaction {transaction} yielded {type(step).__name__}; "
        "it must yield SQL, (SQL, parameters) or a list of these",
        transaction=transaction,
    )


def check_fault(fault: Fault, sql: str, transaction: str) -> None:
    """Raise TransactionError when a fault is the transaction's own: a wrong number of parameters."""
    if fault.sqlstate == PROTOCOL_VIOLATION and not fault.lost:
        raise TransactionError(f"transaction {transaction}: {_excerpt(sql)}: {fault.message}", transaction=transaction)


def raise_own_fault(transaction: str, error: BaseException) -> NoReturn:
    """Raise the TransactionError for an exception that a transaction's own code raised."""
    place = ""
    if frames := traceback.extract_tb(error.__traceback__):
        last = frames[-1]
        # Functions that travelled by value have lost their file (cloudpickle), but not their lines.
        known = not last.filename.startswith("<")
        place = f" ({last.filename}:{last.lineno})" if known else f" (line {last.lineno}, in {last.name})"
    details = mask("".join(traceback.format_exception(error)))
    text = mask(" ".join(str(error).split()))
    raise TransactionError(
        f"transaction {transaction} raised {type(error).__name__}: {text}{place}",
        transaction=transaction,
        details=details,
    ) from error


def _excerpt(sql: str) -> str:
    text = " ".join(sql.split())
    return repr(text if len(text) <= 80 else text[:77] + "...")
