"""libpq's text of a failed connection: message, SQLSTATE and hint."""

from __future__ import annotations

import pytest

from pytest_dsql.connect.refusal import Refusal, parse

AT = 'connection to server at "localhost" (127.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            AT
            + "FATAL:  08006: unable to accept connection, access denied\n"
            + "HINT:  Signature expired: 20261130T090000Z\nLOCATION:  auth, auth.c:1\n",
            Refusal(
                "unable to accept connection, access denied",
                "08006",
                "Signature expired: 20261130T090000Z",
                answered=True,
            ),
            id="verbose",
        ),
        pytest.param(
            AT + 'SCHWERWIEGEND:  28P01: Passwort-Authentifizierung für Benutzer "u" fehlgeschlagen\n',
            Refusal('Passwort-Authentifizierung für Benutzer "u" fehlgeschlagen', "28P01", None, answered=True),
            id="another language",
        ),
        pytest.param(
            AT + "FATAL:  unable to accept connection, access denied\nHINT:  expired\n",
            Refusal("unable to accept connection, access denied", "08006", "expired", answered=True),
            id="usual verbosity, known text",
        ),
        pytest.param(
            AT + "FATAL:  something new\n",
            Refusal("something new", None, None, answered=True),
            id="usual verbosity, unknown text",
        ),
        pytest.param(
            AT + "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?\n",
            Refusal(
                "Connection refused Is the server running on that host and accepting TCP/IP connections?",
                None,
                None,
                answered=False,
            ),
            id="nobody there",
        ),
        pytest.param(
            'connection to server on socket "/tmp/.s.PGSQL.1" failed: No such file or directory',
            Refusal("No such file or directory", None, None, answered=False),
            id="unix socket",
        ),
        pytest.param(
            AT + "FATAL:  28000: no encryption\nLOCATION:  a\n" + AT + "FATAL:  28P01: wrong\nLOCATION:  b\n",
            Refusal("wrong", "28P01", None, answered=True),
            id="two attempts, the last counts",
        ),
        pytest.param("", Refusal("no reason given", None, None, answered=False), id="nothing said"),
    ],
)
def test_taken_apart(text: str, expected: Refusal) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("message", "sqlstate"),
    [
        ("Unable to accept connection, too many open connections.", "53300"),
        ("Unable to accept connection, rate exceeded.", "53400"),
        ('setting configuration parameter "statement_timeout" not supported', "0A000"),
        ('password authentication failed for user "u"', "28P01"),
        ('no pg_hba.conf entry for host "127.0.0.1", user "u", database "d", no encryption', "28000"),
        ("sorry, too many clients already", "53300"),
        ("the database system is starting up", "57P03"),
    ],
)
def test_known_texts_have_their_sqlstate_where_libpq_shows_none(message: str, sqlstate: str) -> None:
    assert parse(f"{AT}FATAL:  {message}\n").sqlstate == sqlstate


def test_nothing_secret_is_kept() -> None:
    refused = parse(
        AT + "FATAL:  08006: unable to accept connection, access denied\n"
        "HINT:  User: arn:aws:sts::123456789012:assumed-role/bench/x is not authorized\n"
    )
    assert refused.hint is not None
    assert "123456789012" not in refused.hint
