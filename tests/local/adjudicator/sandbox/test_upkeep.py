"""Helpers are what the tables are, whatever clients do to these; clients hear nothing of them, and nothing is left."""

from __future__ import annotations

import psycopg
import pytest

from tests.local.adjudicator.sandbox.harness import Server

TABLES = """
CREATE TABLE parent (id integer PRIMARY KEY, v text DEFAULT 'p', w integer);
CREATE TABLE child (
  id integer PRIMARY KEY, parent integer REFERENCES parent ON DELETE CASCADE, v text CHECK (v <> 'bad'));
CREATE VIEW seen AS SELECT id, v FROM parent;
INSERT INTO parent SELECT g, 'v' || g, g FROM generate_series(1, 3) g;
INSERT INTO child VALUES (1, 1, 'a'), (2, 2, 'b');
"""

#: What clients may do to a table, and statements that have to give the same in the sandbox afterwards.
CHANGES = {
    "ALTER TABLE parent ADD COLUMN x integer": ["UPDATE parent SET x = 1 WHERE id = 1 RETURNING *"],
    "ALTER TABLE parent ADD COLUMN x integer, ALTER COLUMN x SET DEFAULT 5": [
        "INSERT INTO parent (id) VALUES (4) RETURNING *"
    ],
    "ALTER TABLE parent DROP COLUMN w": ["SELECT * FROM parent", "INSERT INTO parent VALUES (4, 'x') RETURNING *"],
    "ALTER TABLE child DROP COLUMN parent": ["DELETE FROM parent", "INSERT INTO child VALUES (5, 'x') RETURNING *"],
    "ALTER TABLE parent RENAME COLUMN v TO name": ["UPDATE parent SET name = 'n' RETURNING *", "SELECT * FROM seen"],
    "ALTER TABLE parent RENAME COLUMN id TO key": ["DELETE FROM parent WHERE key = 1", "INSERT INTO parent VALUES (1)"],
    "ALTER TABLE parent RENAME TO other": [
        "DELETE FROM other WHERE id = 1",
        "SELECT * FROM parent",
        "SELECT * FROM seen",
    ],
    "ALTER TABLE child RENAME TO other": ["DELETE FROM parent WHERE id = 1", "INSERT INTO other VALUES (9, 9)"],
    "ALTER TABLE child RENAME CONSTRAINT child_parent_fkey TO named": ["INSERT INTO child VALUES (9, 9)"],
    "ALTER TABLE child RENAME CONSTRAINT child_v_check TO named": ["INSERT INTO child VALUES (9, 1, 'bad')"],
    "ALTER INDEX parent_pkey RENAME TO named": ["INSERT INTO parent VALUES (1)"],
    "ALTER TABLE parent ALTER COLUMN v SET DEFAULT 'other'": ["INSERT INTO parent (id) VALUES (4) RETURNING *"],
    "ALTER TABLE parent ALTER COLUMN v DROP DEFAULT": ["INSERT INTO parent (id) VALUES (4) RETURNING *"],
    "ALTER TABLE parent ADD CONSTRAINT positive CHECK (w > 0) NOT VALID": ["UPDATE parent SET w = -1"],
    "ALTER TABLE child DROP CONSTRAINT child_v_check": ["INSERT INTO child VALUES (9, 1, 'bad')"],
    "ALTER TABLE child DROP CONSTRAINT child_parent_fkey": ["DELETE FROM parent", "INSERT INTO child VALUES (9, 9)"],
    "ALTER TABLE child ADD CONSTRAINT second FOREIGN KEY (id) REFERENCES parent NOT VALID": [
        "INSERT INTO child VALUES (9, 1)",
        "DELETE FROM parent WHERE id = 2",
    ],
    "CREATE UNIQUE INDEX u ON parent (v)": ["UPDATE parent SET v = 'v1' WHERE id = 2"],
    "CREATE UNIQUE INDEX u ON parent (lower(v))": ["UPDATE parent SET v = 'V1' WHERE id = 2"],
    "CREATE UNIQUE INDEX u ON parent (v) WHERE w > 2": ["UPDATE parent SET v = 'same' RETURNING id"],
    "CREATE UNIQUE INDEX u ON parent (v); DROP INDEX u": ["UPDATE parent SET v = 'same' RETURNING id"],
    "CREATE UNIQUE INDEX u ON parent (v); ALTER TABLE parent ADD CONSTRAINT c UNIQUE USING INDEX u": [
        "UPDATE parent SET v = 'x'"
    ],
    "CREATE TABLE new (id bigint PRIMARY KEY, v text);"
    " ALTER TABLE new ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)": [
        "INSERT INTO new (v) VALUES ('x') RETURNING v",
        "INSERT INTO new VALUES (1, 'x')",
    ],
    "CREATE SCHEMA s; ALTER TABLE parent SET SCHEMA s": [
        "DELETE FROM s.parent WHERE id = 1",
        "SELECT * FROM child",
        "SELECT * FROM seen",
    ],
    "CREATE SCHEMA s; CREATE TABLE s.parent (id integer PRIMARY KEY); ALTER SCHEMA s RENAME TO t": [
        "INSERT INTO t.parent VALUES (1), (1)",
        "INSERT INTO t.parent VALUES (1) RETURNING t.parent.id",
    ],
    "DROP TABLE child": ["DELETE FROM parent"],
    "DROP TABLE parent CASCADE": ["INSERT INTO child VALUES (9, 9)", "SELECT * FROM parent", "SELECT * FROM seen"],
    "CREATE OR REPLACE VIEW seen AS SELECT id, v, w FROM parent": ["SELECT * FROM seen"],
    "ALTER VIEW seen RENAME TO looked_at": ["SELECT * FROM looked_at", "SELECT * FROM seen"],
    "ALTER VIEW seen RENAME COLUMN v TO x": ["SELECT x FROM seen"],
    "CREATE VIEW above AS SELECT s.v, 'public.parent, \"x\" E''\\\\' AS lit FROM seen s": ["SELECT * FROM above"],
    "DROP VIEW seen": ["SELECT * FROM seen"],
    "GRANT SELECT ON parent TO reader": ["SELECT * FROM parent"],
    "COMMENT ON TABLE parent IS 'x'": ["SELECT * FROM parent"],
    "DROP TABLE child; DROP TABLE parent CASCADE; CREATE TABLE parent (a text PRIMARY KEY)": [
        "INSERT INTO parent VALUES ('a'), ('a')"
    ],
}


@pytest.fixture
def tables(server: Server) -> Server:
    server.superuser.execute(
        "DO $$ BEGIN IF to_regrole('reader') IS NULL THEN CREATE ROLE reader LOGIN; END IF; END $$"
    )
    server.make(TABLES)
    server.catalog()
    return server


@pytest.mark.parametrize("change", CHANGES)
def test_helpers_follow(tables: Server, change: str) -> None:
    tables.admin.execute(change.encode())
    looks = ["SELECT * FROM child"] if "child" in change or "parent" in change else []
    for sql in CHANGES[change]:
        assert tables.in_sandbox(sql, (), *looks) == tables.on_tables(sql, (), *looks), sql
    assert not tables.catalog().stale


def test_helpers_follow_in_the_transaction_that_is_rolled_back(tables: Server) -> None:
    tables.admin.execute("BEGIN; ALTER TABLE parent ADD COLUMN x integer; ROLLBACK")
    assert tables.in_sandbox("SELECT * FROM parent") == tables.on_tables("SELECT * FROM parent")


def test_nothing_is_left_of_dropped_tables(tables: Server) -> None:
    tables.admin.execute("DROP TABLE parent, child CASCADE; CREATE SCHEMA s; CREATE TABLE s.x (id integer PRIMARY KEY)")
    tables.catalog()
    tables.admin.execute("DROP SCHEMA s CASCADE")
    tables.catalog()
    tables.admin.execute("CREATE TABLE soon_gone (id integer PRIMARY KEY)")
    tables.admin.execute("DROP TABLE soon_gone")
    tables.catalog()
    for _ in range(20):  # what somebody had in use for a moment is left to the next time
        left = tables.superuser.execute(
            r"""SELECT relname FROM pg_class WHERE relnamespace::regnamespace::text ~ '_engine_[vosw]_'
            UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'pytest_dsql_engine_sandbox'::regnamespace
              AND proname ~ '_[0-9]+$'
            UNION ALL SELECT place FROM pytest_dsql_engine_sandbox.helper
            UNION ALL SELECT relid::text FROM pytest_dsql_engine_sandbox.watched
            UNION ALL SELECT nspname FROM pg_namespace
              WHERE nspname ~ '_engine_[vosw]_' AND right(nspname, 32) <> md5('public')"""
        ).fetchall()
        if not left:
            break
        tables.catalog()
    assert left == []


@pytest.mark.parametrize(
    ("statement", "detail"),
    [
        (
            "DROP TABLE parent",
            "constraint child_parent_fkey on table child depends on table parent\nview seen depends on table parent",
        ),
        ("ALTER TABLE parent DROP COLUMN v", "view seen depends on column v of table parent"),
        ("DROP SCHEMA public", None),
    ],
)
def test_clients_hear_nothing_of_helpers(tables: Server, statement: str, detail: str | None) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        tables.admin.execute(statement.encode())
    assert "pytest_dsql" not in str(refused.value)
    if detail is not None:
        assert refused.value.diag.message_detail == detail


def test_a_role_may_do_in_the_sandbox_what_it_may_do_to_the_table(tables: Server) -> None:
    tables.admin.execute("GRANT SELECT (id), INSERT (id, parent) ON child TO reader; GRANT SELECT ON parent TO reader")
    with tables.connect("reader") as reader:
        tables.admin.close()
        tables.admin = reader
        for sql in (
            "SELECT * FROM parent",
            "SELECT id FROM child",
            "SELECT * FROM child",
            "INSERT INTO child (id, parent) VALUES (8, 1)",
            "INSERT INTO child (id, v) VALUES (8, 'x')",
            "UPDATE parent SET v = 'x'",
            "DELETE FROM child",
            "SELECT * FROM seen",
        ):
            assert tables.in_sandbox(sql) == tables.on_tables(sql), sql


def test_helpers_that_are_in_use_are_renewed_the_next_time(tables: Server) -> None:
    with tables.connect("admin") as other:
        other.execute("BEGIN; SELECT pytest_dsql_engine_sandbox.enter()")
        other.execute("INSERT INTO child VALUES (9, 1)")
        tables.superuser.execute(
            "UPDATE pytest_dsql_engine_sandbox.helper SET view_text = 'old' WHERE place = 'public.child'"
        )
        tables.superuser.execute("INSERT INTO pytest_dsql_engine_sandbox.stale SELECT 'public.child'::regclass")
        assert tables.catalog().stale
        other.execute("ROLLBACK")
    assert not tables.catalog().stale


def test_the_catalog_is_answered_while_somebody_changes_a_table(tables: Server) -> None:
    with tables.admin.transaction(force_rollback=True):
        tables.admin.execute("ALTER TABLE parent ADD COLUMN x integer")
        with tables.superuser.transaction():
            tables.superuser.execute("SET LOCAL statement_timeout = '5s'")
            assert {table.name for table in tables.catalog().tables.values()} >= {"parent", "child", "seen"}
