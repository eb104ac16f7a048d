"""A rival that has waited long has a holder's statement stopped: that one, and never the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.postgres import SOCKET_NAME, SUPERUSER
from tests.local.adjudicator.racing import Connect, Make

#: How long a cancellation is on its way here, and how long a statement takes that ends before it arrives, and one that
#: doesn't: both relative to the others, as the engine has a statement stopped 20 ms after it was found in the way.
CANCEL_S = 0.3
SHORT = "(SELECT 1 + 0 * count(*) FROM generate_series(1, 800) AS a, generate_series(1, 1000) AS b)"
LONG = "(SELECT 1 + 0 * count(*) FROM generate_series(1, 8000) AS a, generate_series(1, 1000) AS b)"


@pytest.fixture
def slow_cancellations(engine: Engine, make: Make) -> Iterator[None]:
    """PostgreSQL takes its time until it cancels what it was asked to cancel."""
    make("CREATE TABLE p_item (k int PRIMARY KEY, n int)")
    for socket in engine.control.parent.rglob(SOCKET_NAME):
        with psycopg.connect(host=str(socket.parent), user=SUPERUSER, dbname="postgres", autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('public.p_item')").fetchone() == (None,):
                continue
            connection.execute("ALTER FUNCTION pg_catalog.pg_cancel_backend(integer) RENAME TO cancel_at_once")
            connection.execute(
                "CREATE FUNCTION pg_catalog.pg_cancel_backend(integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
                f" PERFORM pg_catalog.pg_sleep({CANCEL_S}); RETURN pg_catalog.cancel_at_once($1); END $$"
            )
            yield
            connection.execute("DROP FUNCTION pg_catalog.pg_cancel_backend(integer)")
            connection.execute("ALTER FUNCTION pg_catalog.cancel_at_once(integer) RENAME TO pg_cancel_backend")
            return
    raise AssertionError("no PostgreSQL has the table")


@pytest.mark.usefixtures("slow_cancellations")
@pytest.mark.parametrize("volatile", ["", " + floor(random())::int"], ids=["passed on", "run by the driver"])
def test_what_is_stopped_too_late_is_not_the_next_statement(connect: Connect, volatile: str) -> None:
    with connect() as holder, connect() as rival:
        holder.execute("INSERT INTO p_item VALUES (1, 0), (2, 0)")
        holder.execute("BEGIN")
        holder.execute("UPDATE p_item SET n = 1 WHERE k = 1")
        waiting = threading.Thread(target=rival.execute, args=("UPDATE p_item SET n = 9 WHERE k = 1",))
        waiting.start()
        assert holder.execute(f"UPDATE p_item SET n = {SHORT}{volatile} WHERE k = 2".encode()).rowcount == 1
        assert holder.execute(f"SELECT n, {LONG} FROM p_item ORDER BY k".encode()).fetchall() == [(1, 1), (1, 1)]
        waiting.join()
        with pytest.raises(psycopg.errors.SerializationFailure):
            holder.execute("COMMIT")


def test_a_statement_that_is_stopped_goes_on_another_way(connect: Connect, make: Make) -> None:
    make("CREATE TABLE p_other (k int PRIMARY KEY, n int)")
    with connect() as holder, connect() as rival:
        holder.execute("INSERT INTO p_other VALUES (1, 0), (2, 0)")
        holder.execute("BEGIN")
        holder.execute("UPDATE p_other SET n = 1 WHERE k = 1")
        waiting = threading.Thread(target=rival.execute, args=("UPDATE p_other SET n = 9 WHERE k = 1",))
        waiting.start()
        assert holder.execute(f"UPDATE p_other SET n = {LONG} WHERE k = 2".encode()).rowcount == 1
        assert holder.execute("SELECT n FROM p_other ORDER BY k").fetchall() == [(1,), (1,)]
        waiting.join()
        with pytest.raises(psycopg.errors.SerializationFailure):
            holder.execute("COMMIT")
