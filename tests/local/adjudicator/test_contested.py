"""A transaction that has met a rival goes on as if it were alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pytest_dsql.local.client import Engine
from pytest_dsql.local.postgres import SOCKET_NAME, SUPERUSER
from tests.local.adjudicator.racing import Connect, Connection, Make


@pytest.fixture
def contested(connect: Connect, make: Make) -> Iterator[Connection]:
    """A session whose transaction has met a rival, and has written since."""
    make('CREATE TABLE m_item (k int PRIMARY KEY, "V w" text, twice int GENERATED ALWAYS AS (k * 2) STORED)')
    with connect() as one, connect() as rival:
        one.execute("INSERT INTO m_item VALUES (1, 'old'), (2, 'kept')")
        rival.execute("BEGIN")
        rival.execute("UPDATE m_item SET \"V w\" = 'rival' WHERE k = 1")
        one.execute("BEGIN")
        one.execute("UPDATE m_item SET \"V w\" = 'own' WHERE k = 1")
        one.execute("INSERT INTO m_item VALUES (3, 'new')")
        yield one
        one.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("COPY m_item TO STDOUT", b"1\town\n2\tkept\n3\tnew\n"),
        ('COPY public.m_item ("V w", k) TO STDOUT WITH (FORMAT csv, HEADER)', b"V w,k\nown,1\nkept,2\nnew,3\n"),
        ("COPY (SELECT k, twice FROM m_item ORDER BY k) TO STDOUT", b"1\t2\n2\t4\n3\t6\n"),
    ],
)
def test_copy_to_stdout_gives_its_own_rows(contested: Connection, sql: str, expected: bytes) -> None:
    with contested.cursor().copy(sql.encode()) as copy:
        copied = b"".join(bytes(chunk) for chunk in copy)
    header = expected.splitlines(keepends=True)[:1] if b"HEADER" in sql.encode() else []
    assert sorted(copied.splitlines(keepends=True)) == sorted(expected.splitlines(keepends=True))
    assert copied.splitlines(keepends=True)[: len(header)] == header


@pytest.fixture
def superuser(engine: Engine, make: Make) -> Iterator[Connection]:
    """Who can hold a lock that no client of DSQL's can: in the PostgreSQL where the tables are made."""
    make("CREATE TABLE m_one (k int PRIMARY KEY); CREATE TABLE m_other (k int PRIMARY KEY)")
    for socket in engine.control.parent.rglob(SOCKET_NAME):
        with psycopg.connect(host=str(socket.parent), user=SUPERUSER, dbname="postgres") as connection:
            if connection.execute("SELECT to_regclass('public.m_other')").fetchone() != (None,):
                connection.rollback()
                yield connection
                return
    raise AssertionError("no PostgreSQL has the table")


def test_a_lock_that_is_no_rows_is_waited_for_in_the_tables(connect: Connect, superuser: Connection) -> None:
    """Such as that of a file that is being extended, which nobody can hold on purpose: here a table's, for a moment."""
    with connect() as one:
        for sql in ("BEGIN", "INSERT INTO m_one VALUES (1)", "INSERT INTO m_other VALUES (1)"):
            if "m_other" in sql:
                superuser.execute("LOCK TABLE m_other")
                release = threading.Timer(0.03, superuser.rollback)
                release.start()
            one.execute(sql)
        release.join()
        assert one.execute("SELECT xmin IS NOT NULL FROM m_other").fetchall() == [(True,)]  # no view has that
        one.execute("COMMIT")
        assert one.execute("SELECT k FROM m_one").fetchall() == [(1,)]
        superuser.execute("LOCK TABLE m_other")
        release = threading.Timer(0.03, superuser.rollback)
        release.start()
        assert one.execute("INSERT INTO m_other VALUES (2)").rowcount == 1
        release.join()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT current_schema(), current_schemas(true), current_schemas(false)",
        "SELECT current_schema, CURRENT_SCHEMA AS named, upper(current_schema::text)",
        "SHOW search_path",
        "SELECT current_setting('search_path'), current_setting('Search_Path', true)",
        "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema",
    ],
)
@pytest.mark.parametrize("path", ['"$user", public', 'm_other, public, "$user"', ""])
def test_the_path_is_what_it_was(connect: Connect, make: Make, sql: str, path: str) -> None:
    make("CREATE TABLE m_hot (k int PRIMARY KEY, n int)")
    with connect() as one, connect() as rival:
        one.execute("INSERT INTO m_hot VALUES (1, 0)")
        one.execute("SELECT set_config('search_path', %s, false)", (path,))
        before = one.execute(sql.encode())
        expected = (before.fetchall(), [column.name for column in before.description or ()])
        rival.execute("BEGIN")
        rival.execute("UPDATE m_hot SET n = 1")
        one.execute("BEGIN")
        one.execute("UPDATE public.m_hot SET n = 2")
        one.execute("SELECT set_config('application_name', 'other', true)")
        after = one.execute(sql.encode())
        assert (after.fetchall(), [column.name for column in after.description or ()]) == expected
        one.execute("ROLLBACK")


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT * FROM m_hot JOIN public.m_hot AS o USING (k) WHERE k = 1",
        "EXPLAIN (COSTS off) UPDATE m_hot SET n = 3 WHERE k = 1",
        "EXPLAIN INSERT INTO m_hot VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = 2",
    ],
)
@pytest.mark.parametrize("parameters", [None, ()], ids=["simple", "extended"])
def test_explain_shows_the_tables(connect: Connect, make: Make, sql: str, parameters: tuple[()] | None) -> None:
    make("CREATE TABLE m_hot (k int PRIMARY KEY, n int)")
    with connect() as one, connect() as rival:
        one.execute("INSERT INTO m_hot VALUES (1, 0)")
        expected = one.execute(sql.encode(), parameters).fetchall()
        rival.execute("BEGIN")
        rival.execute("UPDATE m_hot SET n = 1")
        one.execute("BEGIN")
        one.execute("UPDATE m_hot SET n = 2")
        assert one.execute(sql.encode(), parameters).fetchall() == expected
        assert one.execute("SELECT n FROM m_hot").fetchall() == [(2,)]
        one.execute("ROLLBACK")


def test_explain_analyze_upserts(connect: Connect, make: Make) -> None:
    make("CREATE TABLE m_hot (k int PRIMARY KEY, n int)")
    with connect() as one, connect() as rival:
        one.execute("INSERT INTO m_hot VALUES (1, 0)")
        rival.execute("BEGIN")
        rival.execute("UPDATE m_hot SET n = 1")
        one.execute("BEGIN")
        one.execute("UPDATE m_hot SET n = 2")
        sql = "INSERT INTO m_hot VALUES (1, 5), (2, 6) ON CONFLICT (k) DO UPDATE SET n = m_hot.n + excluded.n"
        assert one.execute(f"EXPLAIN (ANALYZE, TIMING off) {sql}".encode()).fetchall()
        assert one.execute("SELECT k, n FROM m_hot ORDER BY k").fetchall() == [(1, 7), (2, 6)]
        rival.execute("ROLLBACK")
        one.execute("COMMIT")
        assert one.execute("SELECT k, n FROM m_hot ORDER BY k").fetchall() == [(1, 7), (2, 6)]


Write = Callable[[str, tuple[object, ...]], object]


def with_parameters(connection: Connection) -> Write:
    return lambda sql, values: connection.execute(sql.encode(), values)


def spelled_out(connection: Connection) -> Write:
    """With the values in the texts."""
    cursor = psycopg.ClientCursor(connection)
    return lambda sql, values: cursor.execute(sql.encode(), values)


def write_much(write: Write, rows: int) -> None:
    """Many statements of a few texts, on rows of their own and on the same ones, that need each other's order."""
    for number in range(1, rows + 1):
        write("UPDATE m_stock SET left_ = left_ - %s WHERE k = %s", (number % 3, number))
        write("UPDATE m_stock SET left_ = left_ * 2 WHERE k = %s", (number - number % 7,))
        write("INSERT INTO m_order VALUES (%s, %s, %s)", (number, f"a \"b\" {{}}, \\ '{number}'", number))
        write("INSERT INTO m_stock VALUES (%s, NULL)", (1000 + number,))
        write("INSERT INTO m_order VALUES (%s, %s, %s)", (1000 + number, None, 1000 + number))
        upsert = "INSERT INTO m_order AS o VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET note = o.note || excluded.note"
        write(f"{upsert} WHERE o.item < 30", (number - number % 4, "more"))
        write("INSERT INTO m_order VALUES (%s) ON CONFLICT (k) DO NOTHING", (number - number % 3,))
        if number % 4 == 0:
            write("DELETE FROM m_order WHERE k = %s", (number,))
            write("INSERT INTO m_order VALUES (%s, 'again', 1)", (number,))
        if number % 5 == 0:
            write("DELETE FROM m_order WHERE k = %s", (1000 + number,))
            write("DELETE FROM m_stock WHERE k = %s", (1000 + number,))
    write("UPDATE m_stock SET left_ = left_ + %s", (1,))
    write("INSERT INTO m_order SELECT 2000 + g, 'many' FROM generate_series(1, %s) AS g", (rows,))
    write("DELETE FROM m_order WHERE k BETWEEN 2001 AND %s", (2000 + rows // 2,))


@pytest.mark.parametrize("way", [with_parameters, spelled_out])
def test_many_statements_are_done_again_as_they_were(
    connect: Connect, make: Make, way: Callable[[Connection], Write]
) -> None:
    make(
        "CREATE TABLE m_hot (k int PRIMARY KEY, n int);"
        "CREATE TABLE m_stock (k int PRIMARY KEY, left_ int);"
        "CREATE TABLE m_order (k int PRIMARY KEY, note text, item int REFERENCES m_stock)"
    )
    looks = ("SELECT * FROM m_stock ORDER BY k", "SELECT * FROM m_order ORDER BY k")
    with connect() as one, connect() as rival:
        one.execute("INSERT INTO m_hot VALUES (1, 0)")
        one.execute("INSERT INTO m_stock SELECT g, 100 FROM generate_series(0, 200) AS g")
        one.execute("BEGIN")
        write_much(way(one), 40)
        alone = [one.execute(look.encode()).fetchall() for look in looks]
        one.execute("ROLLBACK")
        rival.execute("BEGIN")
        rival.execute("UPDATE m_hot SET n = 1")
        one.execute("BEGIN")
        write_much(way(one), 40)
        assert one.execute("UPDATE m_hot SET n = n + 1").rowcount == 1
        with pytest.raises(psycopg.errors.UndefinedColumn):
            one.execute("SELECT xmin FROM m_hot")  # it goes on in the sandbox, whose views have none
        one.execute("ROLLBACK")
        one.execute("BEGIN")
        write_much(way(one), 40)
        assert one.execute("UPDATE m_hot SET n = n + 1").rowcount == 1
        assert [one.execute(look.encode()).fetchall() for look in looks] == alone
        rival.execute("ROLLBACK")
        one.execute("COMMIT")
        assert [one.execute(look.encode()).fetchall() for look in looks] == alone
