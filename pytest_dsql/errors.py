"""What can go wrong: SQLSTATE classes, and the exceptions callers can act on."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, final

#: By this DSQL tells its two kinds of 40001 apart (AWS user guide, "Concurrency control in Aurora DSQL"); the other
#: kind, a conflict of rows, says (OC000).
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


#: What a text means whatever SQLSTATE comes with it, or when none does (libpq keeps a refused connection's SQLSTATE to
#: itself). Lower case. Sources: AWS user guide, "Troubleshooting issues in Aurora DSQL" and "Cluster quotas and
#: database limits"; PostgreSQL's own refusals.
_BY_TEXT: Final = (
    ("waking up cluster", ErrorClass.TRANSIENT),  # an INACTIVE cluster resumes when somebody connects
    ("too many open connections", ErrorClass.LIMIT),
    ("unable to accept connection, rate exceeded", ErrorClass.LIMIT),
    ("unable to accept connection, access denied", ErrorClass.AUTH),
    ("iam authentication failed for user", ErrorClass.AUTH),
)
_BY_TEXT_ALONE: Final = (
    ("password authentication failed for user", ErrorClass.AUTH),
    ("pam authentication failed for user", ErrorClass.AUTH),  # RDS refuses a token
    ("no pg_hba.conf entry", ErrorClass.AUTH),
    ("no password supplied", ErrorClass.AUTH),
    ("sorry, too many clients already", ErrorClass.LIMIT),
    ("remaining connection slots are reserved", ErrorClass.LIMIT),
)

_BY_SQLSTATE: Final = {
    "40001": ErrorClass.CONFLICT,  # without OC001 in its text
    "40P01": ErrorClass.CONFLICT,  # deadlock: plain PostgreSQL only, DSQL has none
    # The official Python connector takes these two for conflicts as well.
    "OC000": ErrorClass.CONFLICT,
    "OC001": ErrorClass.SCHEMA_CHANGE,
    "25P03": ErrorClass.CONNECTION,  # idle_in_transaction_session_timeout ends the session
    "25P04": ErrorClass.CONNECTION,  # transaction_timeout does, too
    "57P01": ErrorClass.CONNECTION,  # admin shutdown: an RDS or Aurora failover
    "57P02": ErrorClass.CONNECTION,
    "57P03": ErrorClass.CONNECTION,  # the server is starting up or in recovery
    "57P05": ErrorClass.CONNECTION,  # idle_session_timeout
}
#: 08 connection, 28 invalid authorization, 53 insufficient resources (connections, connection rate, temporary space,
#: storage), 54 program limits (rows, size and age of a transaction, columns, indexes).
_BY_SQLSTATE_CLASS: Final = {
    "08": ErrorClass.CONNECTION,
    "28": ErrorClass.AUTH,
    "53": ErrorClass.LIMIT,
    "54": ErrorClass.LIMIT,
}


def classify(sqlstate: str | None, message: str = "") -> ErrorClass:
    """Tell what a database error means.

    `sqlstate` is None when the error came from the connection itself rather than from the server, or when the driver
    did not pass it on. `message` is the server's text; it decides where DSQL gives one SQLSTATE to several causes
    (08006 for a stale token as for a broken connection).
    """
    text = message.lower()
    for mark, error_class in _BY_TEXT:
        if mark in text:
            return error_class
    if sqlstate is None:
        for mark, error_class in _BY_TEXT_ALONE:
            if mark in text:
                return error_class
        return ErrorClass.CONNECTION
    if sqlstate == "40001" and SCHEMA_CHANGE_MARK in message:
        return ErrorClass.SCHEMA_CHANGE
    if sqlstate == "XX000" and "server unavailable" in text:
        return ErrorClass.TRANSIENT
    if sqlstate == "08P01" and "invalid message length" in text:
        return ErrorClass.LIMIT  # a message over 10 MiB: sending it again cannot help
    return _BY_SQLSTATE.get(sqlstate) or _BY_SQLSTATE_CLASS.get(sqlstate[:2], ErrorClass.OTHER)


#: Classes after which the same transaction may be run again: 40001, 40P01, `XX000 server unavailable` and a lost
#: connection; after a connection lost during COMMIT the receipt decides first.
RETRYABLE: Final = frozenset(
    {ErrorClass.CONFLICT, ErrorClass.SCHEMA_CHANGE, ErrorClass.TRANSIENT, ErrorClass.CONNECTION}
)


class DsqlError(Exception):
    """Base of the product's own errors. The message is one clear line: what happened, to what, what to do."""

    def __reduce__(self) -> tuple[object, ...]:
        # Raised in a worker process and met in the controller: keyword arguments must travel as well.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[DsqlError], args: tuple[object, ...], attributes: dict[str, object]) -> DsqlError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


@final
class UsageError(DsqlError):
    """A wrong option, setting or argument; raised before anything is created."""


@final
class MissingExtra(DsqlError):
    """A part that was not installed; the message names the extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra that is not installed: pip install 'pytest-dsql[{extra}]'")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingExtra, (self.what, self.extra)


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

    def __reduce__(self) -> tuple[Any, ...]:
        return _connection_failed, (str(self), self.phase, self.sqlstate, self.hint)

    @property
    def error_class(self) -> ErrorClass:
        """What the failure means to the caller."""
        return classify(self.sqlstate, str(self))


def _connection_failed(message: str, phase: str, sqlstate: str | None, hint: str | None) -> ConnectionFailed:
    """Make the error anew in another process: pickle passes positional arguments only."""
    return ConnectionFailed(message, phase=phase, sqlstate=sqlstate, hint=hint)


@final
class BudgetReached(DsqlError):
    """No further cell may begin: the run has used the part of its budget up to which one may."""


class ForeignSchema(DsqlError):
    """A schema of our name exists without our identity row: it is somebody else's, and stays untouched."""


class DataLoadFailed(DsqlError):
    """A workload's data could not be loaded, or is not what its design says."""


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


class SloMissed(AssertionError):
    """The objective was missed or an invariant was violated. The text is the table of the cell."""


class Inconclusive(AssertionError):
    """Too little evidence for either verdict. The text is the table of the cell."""


class Invalid(AssertionError):
    """The generator or its environment was the limit, so the cell says nothing about the database."""
