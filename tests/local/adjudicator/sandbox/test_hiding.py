"""No client sees a helper: not in the catalogs, not in PostgreSQL's views on them, not in the information schema."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect import judge
from pytest_dsql.local.installation import find_installation
from tests.local.adjudicator.sandbox.harness import Server

TABLES = """
CREATE TABLE t (id integer PRIMARY KEY, v text UNIQUE);
CREATE TABLE child (t integer REFERENCES t ON DELETE CASCADE);
CREATE VIEW seen AS SELECT * FROM t;
GRANT ALL ON t TO PUBLIC;
"""


@pytest.fixture
def tables(server: Server) -> Server:
    server.make(TABLES)
    server.catalog()
    return server


def ask(server: Server, sql: str) -> list[tuple[object, ...]]:
    """What a client gets for its text."""
    sent = "".join(part.sql for part in judge(sql, date(2026, 11, 1)).parts)
    return server.admin.execute(sent.encode()).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nspname FROM pg_namespace",
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace",
        "SELECT typname FROM pg_type WHERE typname ~ 'engine' OR typnamespace::regnamespace::text ~ 'engine'",
        "SELECT proname, pronamespace::regnamespace FROM pg_proc",
        "SELECT conname, connamespace::regnamespace FROM pg_constraint",
        "SELECT tgname FROM pg_trigger",
        "SELECT tableoid::regclass, relname FROM pg_class",
        "SELECT c.xmin, c.cmax, relname, n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace",
        "SELECT p.tableoid, proname FROM pg_catalog.pg_proc AS p",
        "SELECT t.tableoid, t.typname, c.conname FROM pg_type AS t, pg_constraint AS c WHERE c.conrelid = t.typrelid",
        "SELECT evtname FROM pg_event_trigger",
        "WITH c AS (SELECT * FROM pg_class) SELECT relnamespace::regnamespace FROM c",
        "SELECT * FROM pg_tables WHERE schemaname !~ '^pg_catalog|^information_schema|^sys'",
        "SELECT schemaname, viewname FROM pg_views",
        "SELECT schemaname, indexname FROM pg_indexes",
        "SELECT * FROM information_schema.schemata",
        "SELECT table_schema, table_name FROM information_schema.tables",
        "SELECT table_schema, table_name FROM information_schema.columns",
        "SELECT table_schema, table_name FROM information_schema.views",
        "SELECT trigger_schema, trigger_name FROM information_schema.triggers",
        "SELECT constraint_schema, constraint_name FROM information_schema.table_constraints",
        "SELECT table_schema, table_name FROM information_schema.table_privileges",
        "SELECT routine_schema, routine_name FROM information_schema.routines",
        "SELECT schemaname, relname FROM pg_stat_user_tables",
    ],
)
def test_nothing_shows(tables: Server, sql: str) -> None:
    assert [row for row in ask(tables, sql) if "pytest_dsql" in str(row)] == []


def test_tables_show_once(tables: Server) -> None:
    assert ask(tables, "SELECT relname FROM pg_class WHERE relname IN ('t', 'seen') ORDER BY 1") == [("seen",), ("t",)]
    assert ask(tables, "SELECT count(*) FROM pg_tables WHERE tablename = 't'") == [(1,)]
    assert ask(tables, "SELECT count(*) FROM information_schema.tables WHERE table_name = 't'") == [(1,)]


def test_names_of_catalogs_still_stand_for_their_numbers(tables: Server) -> None:
    tables.admin.execute("COMMENT ON TABLE t IS 'said'")
    assert ask(tables, "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c WHERE c.relname = 't'") == [("said",)]
    found = ask(
        tables,
        "SELECT d.description FROM pg_description d JOIN pg_class ON pg_class.oid = d.objoid"
        " WHERE d.classoid = 'pg_class'::regclass AND pg_class.oid = 't'::regclass",
    )
    assert found == [("said",)]
    assert ask(tables, "SELECT tableoid::regclass::text FROM pg_class WHERE oid = 't'::regclass") == [("pg_class",)]


def test_psql_shows_nothing(tables: Server, cluster: Cluster) -> None:
    commands = [r"\d", r"\d t", r"\d+ t", r"\dt *.*", r"\dn", r"\dv *.*", r"\di", r"\df", r"\dp", r"\dy"]
    psql = subprocess.run(
        [find_installation().program("psql"), "-X", "-E", *(word for command in commands for word in ("-c", command))],
        env=os.environ | {"PGHOST": str(Path(cluster.socket_path).parent), "PGUSER": "admin", "PGDATABASE": "postgres"},
        capture_output=True,
        text=True,
        check=True,
    )
    # psql itself speaks to PostgreSQL without the judge here: its queries are taken, and asked as a client would.
    queries = [text.partition("\n****")[0] for text in psql.stdout.split("********* QUERY **********\n")[1:]]
    assert len(queries) >= len(commands)
    for query in queries:
        assert [row for row in ask(tables, query) if "pytest_dsql" in str(row)] == [], query


def test_columns_are_found_by_the_catalogs_full_name(tables: Server) -> None:
    sql = (  # as SQLAlchemy asks whether there is a table
        "SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace"
        " ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace"
        " WHERE pg_catalog.pg_class.relname = 't'"
    )
    assert ask(tables, sql) == [("t",)]
    assert (
        len(ask(tables, "SELECT \"pg_catalog\".pg_class.* FROM pg_class WHERE pg_catalog.pg_class.oid = 't'::regclass"))
        == 1
    )


def test_system_columns_are_those_of_the_catalog(tables: Server) -> None:
    sql = "SELECT tableoid::regclass::text, cmin IS NOT NULL, xmin IS NOT NULL FROM pg_class WHERE relname = 't'"
    assert ask(tables, sql) == [("pg_class", True, True)]


def test_only_tables_of_foreign_keys_have_triggers(tables: Server) -> None:
    tables.admin.execute("CREATE TABLE lonely (k int PRIMARY KEY)")
    assert ask(tables, "SELECT relname FROM pg_class WHERE relhastriggers ORDER BY 1") == [("child",), ("t",)]
    assert ask(tables, "SELECT tablename FROM pg_tables WHERE hastriggers ORDER BY 1") == [("child",), ("t",)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT attrelid::regclass::text FROM pg_attribute",
        "SELECT DISTINCT adrelid::regclass::text FROM pg_catalog.pg_attrdef",
        "SELECT indexrelid::regclass::text, indrelid::regclass::text FROM pg_index",
        "SELECT ev_class::regclass::text FROM pg_rewrite",
        "SELECT pg_describe_object(classid, objid, 0), pg_describe_object(refclassid, refobjid, 0) FROM pg_depend",
        "SELECT pg_describe_object(classid, objid, objsubid) FROM pg_shdepend WHERE dbid <> 0",
        "SELECT pg_describe_object(classoid, objoid, objsubid) FROM pg_init_privs",
        "SELECT setconfig FROM pg_db_role_setting",
    ],
)
def test_catalogs_of_details_show_nothing_of_the_engines(tables: Server, sql: str) -> None:
    assert [row for row in ask(tables, sql) if re.search("pytest_dsql|dsql_limits", str(row))] == []


def test_what_a_table_depends_on_is_the_clients(tables: Server) -> None:
    tables.admin.execute("CREATE TABLE leaning (k int PRIMARY KEY, v int DEFAULT 1)")
    sql = "SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend WHERE refobjid = 'leaning'::regclass"
    assert sorted(ask(tables, sql)) == [
        ("constraint leaning_pkey on table leaning",),
        ("default value for column v of table leaning",),
        ("type leaning",),
    ]


def test_rows_of_the_catalogs_fit_the_functions_that_take_them(tables: Server) -> None:
    true_type = "information_schema._pg_truetypid(a, t)"
    sql = (
        f"SELECT information_schema._pg_char_max_length({true_type}, information_schema._pg_truetypmod(a, t))"
        "{} FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE attrelid = 'long'::regclass AND attnum > 0"
    )
    tables.admin.execute("CREATE TABLE long (v varchar(17))")
    assert ask(tables, sql.format("")) == [(17,)]
    assert ask(tables, sql.format(", a.tableoid::regclass::text")) == [(17, "pg_attribute")]
    assert ask(tables, "SELECT count(*) FROM pg_proc WHERE proname = '_pg_truetypid'") == [(1,)]


def test_a_query_of_a_catalogs_name_is_that_query(tables: Server) -> None:
    assert ask(tables, "WITH pg_class AS (SELECT 1 AS x) SELECT * FROM pg_class") == [(1,)]
    named = "WITH pg_class AS (SELECT relname FROM pg_catalog.pg_class WHERE relname ~ 'dsql') SELECT * FROM pg_class"
    assert ask(tables, named) == []


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO child (t) SELECT 1 FROM pg_class WHERE relname ~ 'pytest_dsql' RETURNING t",
        "UPDATE t SET v = relname FROM pg_class WHERE relname ~ 'pytest_dsql' RETURNING v",
        "DELETE FROM t USING pg_catalog.pg_namespace WHERE nspname ~ 'pytest_dsql' RETURNING v",
        "WITH n AS (TABLE pg_namespace) INSERT INTO t SELECT 7, nspname FROM n WHERE nspname ~ 'dsql_' RETURNING v",
    ],
)
def test_what_writes_sees_nothing_either(tables: Server, sql: str) -> None:
    tables.admin.execute("INSERT INTO t VALUES (1, 'a')")
    assert ask(tables, sql) == []


def test_there_are_no_schemas_for_what_is_temporary(tables: Server) -> None:
    assert ask(tables, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'temp'") == []
