"""What a database error means, by SQLSTATE and text."""

from __future__ import annotations

import pickle

import pytest

from pytest_dsql.errors import RETRYABLE, ConnectionFailed, ErrorClass, MissingExtra, classify

# Texts from the AWS user guide ("Concurrency control", "Troubleshooting issues", "Cluster quotas and database limits in
# Amazon Aurora DSQL") and from clusters.
DSQL = [
    ("40001", "change conflicts with another transaction (OC000)", ErrorClass.CONFLICT),
    ("40001", "mutation conflicts with another transaction, retry as needed (OC000)", ErrorClass.CONFLICT),
    ("40001", "schema has been updated by another transaction (OC001)", ErrorClass.SCHEMA_CHANGE),
    (
        "40001",
        "schema has been updated by another transaction, please retry: (OC001)",
        ErrorClass.SCHEMA_CHANGE,
    ),
    ("OC000", "change conflicts with another transaction", ErrorClass.CONFLICT),
    ("OC001", "schema has been updated", ErrorClass.SCHEMA_CHANGE),
    ("08006", "unable to accept connection, access denied", ErrorClass.AUTH),
    ("28000", "unable to accept connection, access denied", ErrorClass.AUTH),
    ("28000", 'IAM authentication failed for user "admin"', ErrorClass.AUTH),
    ("08006", "unable to accept connection, waking up cluster, please retry later", ErrorClass.TRANSIENT),
    ("57P03", "unable to accept connection, waking up cluster, please retry later", ErrorClass.TRANSIENT),
    ("08006", "unable to accept connection, sni was not received", ErrorClass.CONNECTION),
    ("53300", "Unable to accept connection, too many open connections.", ErrorClass.LIMIT),
    ("53400", "Unable to accept connection, rate exceeded.", ErrorClass.LIMIT),
    ("0A000", 'setting configuration parameter "statement_timeout" not supported', ErrorClass.OTHER),
    ("XX000", "server unavailable", ErrorClass.TRANSIENT),
    ("XX000", "internal error", ErrorClass.OTHER),
    ("54000", "transaction row limit exceeded", ErrorClass.LIMIT),
    ("54000", "transaction size limit 10mb exceeded", ErrorClass.LIMIT),
    ("54000", "transaction age limit of 300s exceeded", ErrorClass.LIMIT),
    ("54000", "query requires more than allowed temp space of 131072 KB to execute", ErrorClass.LIMIT),
    ("53200", "query requires too much temp space, out of memory.", ErrorClass.LIMIT),
    ("53100", "Current cluster size exceeds cluster size limit.", ErrorClass.LIMIT),
    ("54011", "tables can have at most 255 columns", ErrorClass.LIMIT),
    ("08P01", "invalid message length", ErrorClass.LIMIT),
    ("08006", "server closed the connection unexpectedly", ErrorClass.CONNECTION),
    ("23505", "duplicate key value violates unique constraint", ErrorClass.OTHER),
    ("42501", "permission denied for table products", ErrorClass.OTHER),
    ("25P02", "current transaction is aborted", ErrorClass.OTHER),
]

POSTGRESQL = [
    ("40001", "could not serialize access due to concurrent update", ErrorClass.CONFLICT),
    ("40P01", "deadlock detected", ErrorClass.CONFLICT),
    ("28P01", 'password authentication failed for user "u"', ErrorClass.AUTH),
    ("53300", "sorry, too many clients already", ErrorClass.LIMIT),
    ("57P01", "terminating connection due to administrator command", ErrorClass.CONNECTION),
    ("57P03", "the database system is starting up", ErrorClass.CONNECTION),
    ("57P05", "terminating connection due to idle-session timeout", ErrorClass.CONNECTION),
    ("25P03", "terminating connection due to idle-in-transaction timeout", ErrorClass.CONNECTION),
    ("57014", "canceling statement due to user request", ErrorClass.OTHER),
    ("3D000", 'database "x" does not exist', ErrorClass.OTHER),
]

#: libpq gives no SQLSTATE for what it found out itself, and may keep the server's.
WITHOUT_SQLSTATE = [
    ("", ErrorClass.CONNECTION),
    ("server closed the connection unexpectedly", ErrorClass.CONNECTION),
    ("FATAL:  unable to accept connection, access denied", ErrorClass.AUTH),
    ("FATAL:  unable to accept connection, waking up cluster, please retry later", ErrorClass.TRANSIENT),
    ("FATAL:  Unable to accept connection, too many open connections.", ErrorClass.LIMIT),
    ("FATAL:  Unable to accept connection, rate exceeded.", ErrorClass.LIMIT),
    ('FATAL:  password authentication failed for user "u"', ErrorClass.AUTH),
    ("fe_sendauth: no password supplied", ErrorClass.AUTH),
    ("FATAL:  sorry, too many clients already", ErrorClass.LIMIT),
]


@pytest.mark.parametrize(("sqlstate", "message", "expected"), DSQL + POSTGRESQL)
def test_sqlstate_and_text_tell_the_class(sqlstate: str, message: str, expected: ErrorClass) -> None:
    assert classify(sqlstate, message) is expected


@pytest.mark.parametrize(("message", "expected"), WITHOUT_SQLSTATE)
def test_the_text_alone_tells_the_class(message: str, expected: ErrorClass) -> None:
    assert classify(None, message) is expected


def test_a_statement_that_quotes_a_refusal_of_passwords_is_no_refusal() -> None:
    assert classify("23514", "no password supplied") is ErrorClass.OTHER


def test_refused_tokens_and_limits_are_not_retried() -> None:
    assert ErrorClass.AUTH not in RETRYABLE
    assert ErrorClass.LIMIT not in RETRYABLE
    assert ErrorClass.OTHER not in RETRYABLE


def test_a_failed_connection_knows_its_class() -> None:
    error = ConnectionFailed(
        "could not connect: unable to accept connection, access denied", phase="authentication", sqlstate="08006"
    )
    assert error.error_class is ErrorClass.AUTH


def test_a_failed_connection_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ConnectionFailed("refused", phase="tcp", sqlstate="08006", hint="wait")))
    assert (str(error), error.phase, error.sqlstate, error.hint) == ("refused", "tcp", "08006", "wait")


def test_a_missing_extra_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingExtra("the engine", "local")))
    assert (error.extra, str(error)) == ("local", str(MissingExtra("the engine", "local")))


def test_a_missing_extra_names_what_to_install() -> None:
    assert "pip install 'pytest-dsql[local]'" in str(MissingExtra("the engine", "local"))
