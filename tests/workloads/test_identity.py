"""Whose schema is it: without our identity row a schema of our name stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pytest_dsql.errors import ForeignSchema, UsageError
from pytest_dsql.workloads import identity as identity_module
from pytest_dsql.workloads.identity import Dialect, Identity, claim_schema, mark_loaded, remove_schema, schema_state
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.sessions import Session

OURS = Identity("pytest_dsql_example", "example", 1, "tiny (rows 3)", 5)


@pytest.fixture
def session(connect: Connect) -> Iterator[Session]:
    with Session(connect) as opened:
        yield opened


def _dump(session: Session) -> list[tuple[Any, ...]]:
    query = """SELECT c.relname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = %s ORDER BY 1"""
    return session.query(query, (OURS.schema,))


@pytest.mark.parametrize("dialect", ["postgresql", "dsql"])
def test_claiming_makes_a_schema_that_says_whose_it_is(session: Session, dialect: Dialect) -> None:
    assert schema_state(session, OURS) is None
    assert claim_schema(session, OURS, dialect=dialect) == "loading"
    assert claim_schema(session, OURS, dialect=dialect) == "loading"
    mark_loaded(session, OURS)
    assert claim_schema(session, OURS, dialect=dialect) == schema_state(session, OURS) == "loaded"


_TABLE = "CREATE TABLE pytest_dsql_example.identity (product {}, workload text, schema_version int, {})".format
_REST = "scale text, seed int, state text"
_OTHER_ROW = "INSERT INTO pytest_dsql_example.identity VALUES ('other', 'example', 1, 'tiny (rows 3)', 5, 'loaded')"

_OTHERS: dict[str, list[str]] = {
    "empty": [],
    "a table of theirs": ["CREATE TABLE pytest_dsql_example.orders (id bigint)"],
    "a view of theirs": ["CREATE VIEW pytest_dsql_example.orders AS SELECT 1"],
    "an identity table without a row": [_TABLE("text", _REST)],
    "an identity table with another product's row": [_TABLE("text", _REST), _OTHER_ROW],
    "an identity table of another shape": ["CREATE TABLE pytest_dsql_example.identity (who text)"],
    "an identity table of other types": [_TABLE("int", _REST)],
}


@pytest.mark.parametrize("statements", _OTHERS.values(), ids=_OTHERS)
@pytest.mark.parametrize(
    "act",
    [
        lambda session: claim_schema(session, OURS, dialect="postgresql"),
        lambda session: claim_schema(session, OURS, dialect="dsql"),
        lambda session: schema_state(session, OURS),
        lambda session: remove_schema(session, OURS.schema, OURS.workload, ["orders"]),
    ],
    ids=["claim", "claim-dsql", "state", "remove"],
)
def test_a_schema_without_our_row_is_refused_and_left_as_it_is(
    session: Session, statements: list[str], act: Callable[[Session], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_module, "_CREATION_S", 0.0)
    session.execute("CREATE SCHEMA pytest_dsql_example")
    for statement in statements:
        session.execute(statement)
    before = _dump(session)
    with pytest.raises(ForeignSchema, match=r"without the identity row.*not touched"):
        act(session)
    assert _dump(session) == before


def test_a_schema_that_another_process_is_making_is_waited_for(session: Session, connect: Connect) -> None:
    session.execute("CREATE SCHEMA pytest_dsql_example")

    def finish() -> None:
        with connect() as connection:
            connection.execute(_TABLE("text", _REST))
            connection.execute(_OTHER_ROW.replace("other", "pytest-dsql").replace("loaded", "loading"))

    with ThreadPoolExecutor() as threads:
        done = threads.submit(finish)
        assert claim_schema(session, OURS, dialect="dsql") == "loading"
        done.result()


@pytest.mark.parametrize("dialect", ["postgresql", "dsql"])
def test_several_processes_may_claim_at_once(connect: Connect, dialect: Dialect) -> None:
    def claim(_: int) -> str:
        with Session(connect) as own:
            return claim_schema(own, OURS, dialect=dialect)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(claim, range(4))) == ["loading"] * 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scale": "quick (rows 9)"}, "--dsql-scale tiny --dsql-seed 5.*DROP SCHEMA pytest_dsql_example CASCADE"),
        ({"seed": 6}, "wanted: scale tiny .rows 3., seed 6"),
        ({"version": 2}, "version 1; wanted: .*version 2"),
    ],
)
def test_other_data_of_ours_is_refused_with_the_remedy(session: Session, changed: dict[str, Any], said: str) -> None:
    claim_schema(session, OURS, dialect="postgresql")
    with pytest.raises(UsageError, match=said):
        claim_schema(session, replace(OURS, **changed), dialect="postgresql")


def test_another_workloads_schema_is_not_this_ones(session: Session) -> None:
    claim_schema(session, OURS, dialect="postgresql")
    with pytest.raises(ForeignSchema, match="holds the workload 'example'"):
        schema_state(session, replace(OURS, workload="transfers"))
    with pytest.raises(ForeignSchema, match="nothing was dropped"):
        remove_schema(session, OURS.schema, "transfers", [])


def test_a_schema_that_this_role_may_not_read_is_refused(session: Session, connect: Connect) -> None:
    claim_schema(session, OURS, dialect="postgresql")
    session.execute("DO $$ BEGIN CREATE ROLE nobody_here; EXCEPTION WHEN duplicate_object THEN NULL; END $$")

    def as_nobody() -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = connect()
        connection.execute("SET ROLE nobody_here")
        return connection

    with Session(as_nobody) as other, pytest.raises(ForeignSchema, match="may not read its identity row"):
        claim_schema(other, OURS, dialect="postgresql")


def test_removal_spares_a_schema_that_holds_something_else_too(session: Session) -> None:
    claim_schema(session, OURS, dialect="postgresql")
    session.execute("CREATE TABLE pytest_dsql_example.mine (id bigint)")
    before = _dump(session)
    with pytest.raises(ForeignSchema, match="also holds mine, not ours"):
        remove_schema(session, OURS.schema, OURS.workload, [])
    assert _dump(session) == before
