"""Waiting for indexes that are built by jobs: valid decides, not present; a failed job is told and can be repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pytest_dsql.errors import DataLoadFailed
from pytest_dsql.workloads.orders import indexes
from pytest_dsql.workloads.orders.indexes import build_indexes
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.schema import SCHEMA, TABLES
from pytest_dsql.workloads.sessions import Session

_SET_VALID = "UPDATE pg_index SET indisvalid = {} WHERE indexrelid = '{}.ledger_order'::regclass"


@pytest.fixture
def session(connect: Connect) -> Iterator[Session]:
    """A session on the tables, with both indexes: `ledger_order` as DSQL shows it while its job runs."""
    with Session(connect) as opened:
        opened.execute(f"CREATE SCHEMA {SCHEMA}")
        for statement in TABLES.values():
            opened.execute(statement)
        build_indexes(opened, "postgresql")
        opened.execute(_SET_VALID.format("false", SCHEMA))
        yield opened
        opened.execute("DROP SCHEMA IF EXISTS sys CASCADE")


def _job(session: Session, status: str) -> None:
    session.execute("CREATE SCHEMA sys")
    session.execute("CREATE TABLE sys.jobs (job_id text, status text, details text)")
    session.execute("INSERT INTO sys.jobs VALUES ('job1', %s, 'why')", (status,))


def test_an_index_that_is_there_but_not_valid_is_waited_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = _valid_after_three_polls(session, monkeypatch)
    build_indexes(session, "postgresql")
    assert len(polls) == 3


def test_a_job_that_goes_on_is_waited_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    _job(session, "processing")
    polls = _valid_after_three_polls(session, monkeypatch)
    indexes._wait_until_valid(session, "ledger_order", "job1", time.monotonic() - 10)
    assert len(polls) == 3


def _valid_after_three_polls(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 3:
            session.execute(_SET_VALID.format("true", SCHEMA))

    monkeypatch.setattr("time.sleep", sleep)
    return polls


def test_a_failed_job_is_told_and_its_index_dropped(session: Session) -> None:
    _job(session, "failed")
    with pytest.raises(DataLoadFailed, match=r"could not build index .*ledger_order \(job job1\): why"):
        indexes._wait_until_valid(session, "ledger_order", "job1", time.monotonic() - 10)
    build_indexes(session, "postgresql")


def test_an_index_that_never_becomes_valid_is_given_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "_BUILD_S", 0.0)
    with pytest.raises(DataLoadFailed, match="still not valid after 0 s"):
        build_indexes(session, "postgresql")


def test_an_index_that_was_dropped_is_not_waited_for(session: Session) -> None:
    session.execute(f"DROP INDEX {SCHEMA}.ledger_order")
    with pytest.raises(DataLoadFailed, match="was dropped while"):
        indexes._wait_until_valid(session, "ledger_order", None, time.monotonic())
