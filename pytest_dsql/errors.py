"""What can go wrong: SQLSTATE classes, and the exceptions callers can act on."""

from __future__ import annotations

from enum import Enum
from typing import Final, final

#: The texts by which DSQL tells its two kinds of 40001 apart (AWS user guide, "Concurrency control in Aurora DSQL").
CONFLICT_MARK: Final = "(OC000)"
SCHEMA_CHANGE_MARK: Final = "(OC001)"


class ErrorClass(Enum):
    """What a database error means to the caller that got it."""

    CONFLICT = "conflict"  #: another transaction won; run the transaction again
    SCHEMA_CHANGE = "schema_change"  #: the catalog moved under the session; run the transaction again
    LIMIT = "limit"  #: a limit of the service: connections, connection rate, transaction size or age
    AUTH = "auth"  #: the token, the credentials or the role were refused
    TRANSIENT = "transient"  #: the service was in trouble; run again, the outcome may be unknown
    CONNECTION = "connection"  #: the connection was lost or could not be made
    OTHER = "other"  #: a fault of the statement or of the data


def classify(sqlstate: str | None, message: str = "") -> ErrorClass:
    """Tell what a database error means.

    `sqlstate` is None when the error came from the connection itself rather than from the server.
    """
    if sqlstate is None:
        return ErrorClass.CONNECTION
    if sqlstate == "40001":
        return ErrorClass.SCHEMA_CHANGE if SCHEMA_CHANGE_MARK in message else ErrorClass.CONFLICT
    if sqlstate == "40P01":
        return ErrorClass.CONFLICT
    if sqlstate in ("53300", "53400") or sqlstate.startswith("54"):
        return ErrorClass.LIMIT
    if sqlstate.startswith("28") or (sqlstate == "08006" and "access denied" in message):
        return ErrorClass.AUTH
    if sqlstate == "XX000" and "server unavailable" in message:
        return ErrorClass.TRANSIENT
    if sqlstate.startswith("08") or sqlstate in ("57P01", "57P02", "57P03"):
        return ErrorClass.CONNECTION
    return ErrorClass.OTHER


#: Classes after which the same transaction may be run again (DESIGN: retry on 40001, 40P01, `XX000 server unavailable`
#: and a lost connection; after a connection lost during COMMIT the receipt decides first).
RETRYABLE: Final = frozenset(
    {ErrorClass.CONFLICT, ErrorClass.SCHEMA_CHANGE, ErrorClass.TRANSIENT, ErrorClass.CONNECTION}
)


class DsqlError(Exception):
    """Base of the product's own errors. The message is one clear line: what happened, to what, what to do."""


@final
class UsageError(DsqlError):
    """A wrong option, setting or argument; raised before anything is created."""


@final
class MissingExtra(DsqlError):
    """A part that was not installed; the message names the extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra that is not installed: pip install 'pytest-dsql[{extra}]'")
        self.extra = extra


class EngineError(DsqlError):
    """The embedded engine could not start, or ended when it should not have."""


class CredentialsError(DsqlError):
    """No usable AWS credentials: missing, incomplete or expired."""


@final
class ConnectionFailed(DsqlError):
    """A connection could not be made. Never carries a token."""

    def __init__(self, message: str, *, phase: str, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.phase = phase  #: the phase that failed: resolve, tcp, tls, authentication or startup
        self.sqlstate = sqlstate  #: the server's SQLSTATE, None when the server said nothing
        self.hint = hint  #: the server's HINT, masked

    @property
    def error_class(self) -> ErrorClass:
        """What the failure means to the caller."""
        return classify(self.sqlstate, str(self))


class ForeignSchema(DsqlError):
    """A schema of our name exists without our identity row: it is somebody else's, and stays untouched."""


class LoadFailed(DsqlError):
    """The load generator could not do its work: a worker died, or could not start."""


@final
class TransactionError(DsqlError):
    """A transaction's own code is wrong: it raised, yielded what is no statement, or gave a wrong parameter.

    It ends the cell: a fault of the transaction says nothing about the database.
    """

    def __init__(self, message: str, *, transaction: str, details: str = "") -> None:
        super().__init__(message)
        self.transaction = transaction  #: the transaction's name
        self.details = details  #: the masked traceback, "" when there is none

    def __reduce__(self) -> tuple[object, ...]:
        # Raised in a worker process, met in the controller; the keyword arguments must travel too.
        return _transaction_error, (str(self), self.transaction, self.details)


def _transaction_error(message: str, transaction: str, details: str) -> TransactionError:
    return TransactionError(message, transaction=transaction, details=details)


class SloMissed(AssertionError):
    """The objective was missed or an invariant was violated. The text is the table of the cell."""


class Inconclusive(AssertionError):
    """Too little evidence for either verdict. The text is the table of the cell."""


class Invalid(AssertionError):
    """The generator or its environment was the limit, so the cell says nothing about the database."""
