"""How refusals and errors look to a client."""

from __future__ import annotations

import pytest

from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import disguise, frames


def quoted(statement: str) -> bytes:
    """PostgreSQL's error about a failing statement's literal."""
    literal = statement.split("'")[1]
    return b"SERROR\0VERROR\0C22P02\0M" + f'invalid input syntax for type integer: "{literal}"'.encode() + b"\0P8\0\0"


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("0A000", "unsupported statement: Lock"),
        Refusal("42601", "with \"quotes\", 'apostrophes' and \u00e9", "a detail", "a hint\nof two lines"),
    ],
)
def test_a_refusal_comes_back_whole(refusal: Refusal) -> None:
    assert disguise.replace_error(quoted(disguise.failing_statement(refusal))) == frames.error(
        "ERROR", refusal.sqlstate, refusal.message, detail=refusal.detail, hint=refusal.hint
    )


@pytest.mark.parametrize("sqlstate", [b"40001", b"40P01"])
def test_conflicts_are_reported_as_dsqls(sqlstate: bytes) -> None:
    replaced = disguise.replace_error(b"SERROR\0VERROR\0C" + sqlstate + b"\0Mcould not serialize access\0\0")
    assert replaced is not None
    found = frames.fields(replaced[5:])
    assert (found["C"], found["M"]) == (b"40001", b"change conflicts with another transaction (OC000)")


@pytest.mark.parametrize("said", [b"C22012\0Mdivision by zero", b"C57014\0MCOPY from stdin failed: I gave up"])
def test_other_errors_stay_as_they_are(said: bytes) -> None:
    assert disguise.replace_error(b"SERROR\0VERROR\0" + said + b"\0Wwhere\0\0") is None


def test_the_engines_own_functions_are_hidden() -> None:
    payload = b"SERROR\0C42703\0Mno column\0Wstatement\nPL/pgSQL function sys.run_job() line 1\0qCREATE\0p9\0\0"
    replaced = disguise.replace_error(payload)
    assert replaced is not None
    assert frames.fields(replaced[5:]) == {"S": b"ERROR", "C": b"42703", "M": b"no column"}


def test_a_notice_of_the_users_stays_as_it_is() -> None:
    assert disguise.replace_notice(b'SNOTICE\0C42P07\0Mrelation "t" already exists, skipping\0\0') is None
