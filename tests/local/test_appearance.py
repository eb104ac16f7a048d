"""What clients see of the catalog, with psql as one that doesn't come from here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pytest_dsql.connect.token import sign_token
from pytest_dsql.local.client import Engine
from pytest_dsql.local.options import EngineOptions
from tests.local.engines import connect, endpoint_of

Psql = Callable[..., str]

_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with (
        Engine.start_or_attach(options=EngineOptions().with_settings({"job_build_s": "0"})) as engine,
        connect(engine) as connection,
    ):
        connection.execute('CREATE TABLE t (k int, "K k" text, v int UNIQUE, w text, PRIMARY KEY (w, k))')
        connection.execute("CREATE TABLE only_keys (k int PRIMARY KEY)")
        connection.execute('CREATE TABLE " USING btree (" (k int PRIMARY KEY, v int)')
        connection.execute("CREATE VIEW seen AS SELECT k FROM t")
        connection.execute("CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        yield engine


@pytest.fixture
def connection(engine: Engine) -> Iterator[psycopg.Connection[Any]]:
    with connect(engine) as connection:
        yield connection


@pytest.fixture
def psql(engine: Engine) -> Psql:
    """Run psql's commands, and give what it printed."""
    endpoint = endpoint_of(engine)
    conninfo = endpoint.conninfo(sign_token(endpoint))
    environment = os.environ | {variable: conninfo[name] for name, variable in _VARIABLES.items()}

    def run(*commands: str) -> str:
        arguments = [argument for command in commands for argument in ("-c", command)]
        # The system's, if there is one: the wheel's can't do TLS.
        done = subprocess.run(["psql", "-X", *arguments], env=environment, capture_output=True, text=True, check=False)
        assert "ERROR" not in done.stderr
        return done.stdout

    try:
        subprocess.run(["psql", "--version"], check=True, capture_output=True)
    except OSError:
        pytest.skip("there is no psql")
    return run


def rows(connection: psycopg.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def test_the_primary_key_is_shown_with_the_whole_row(psql: Psql) -> None:
    shown = psql(r"\d t")
    assert '"t_pkey" PRIMARY KEY, btree_index (w, k) INCLUDE ("K k", v)' in shown
    assert '"t_v_key" UNIQUE CONSTRAINT, btree_index (v)' in shown


def test_indexes_are_defined_as_dsqls(connection: psycopg.Connection[Any]) -> None:
    sql = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"
    assert dict(rows(connection, sql)) == {
        " USING btree (_pkey": 'CREATE UNIQUE INDEX " USING btree (_pkey" ON public." USING btree (" '
        "USING btree_index (k) INCLUDE (v)",
        "only_keys_pkey": "CREATE UNIQUE INDEX only_keys_pkey ON public.only_keys USING btree_index (k)",
        "t_pkey": 'CREATE UNIQUE INDEX t_pkey ON public.t USING btree_index (w, k) INCLUDE ("K k", v)',
        "t_v_key": "CREATE UNIQUE INDEX t_v_key ON public.t USING btree_index (v)",
    }


def test_the_columns_of_the_primary_key_are_told_from_those_it_includes(connection: psycopg.Connection[Any]) -> None:
    sql = "SELECT indnkeyatts, indnatts, indkey::text FROM pg_index WHERE indexrelid = 't_pkey'::regclass"
    assert rows(connection, sql) == [(2, 4, "4 1 2 3")]
    columns = "SELECT pg_get_indexdef('t_pkey'::regclass, place, true) FROM generate_series(1, 5) AS place"
    assert rows(connection, columns) == [("w",), ("k",), ('"K k"',), ("v",), ("",)]
    constraint = "SELECT conkey, pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 't_pkey'"
    assert rows(connection, constraint) == [([4, 1], 'PRIMARY KEY (w, k) INCLUDE ("K k", v)')]
    constraint = "SELECT pg_get_constraintdef(oid, true) FROM pg_constraint WHERE conname = 't_v_key'"
    assert rows(connection, constraint) == [("UNIQUE (v)",)]


def test_nothing_of_the_engines_own_is_listed(psql: Psql) -> None:
    commands = [
        r"\du",
        r"\l",
        r"\dn+",
        r"\dt *.*",
        r"\df *.*",
        r"\dT *.*",
        r"\dv *.*",
        r"\ds *.*",
        r"\dp *.*",
        r"\di *.*",
    ]
    commands += [r"\ddp", r"\dy", r"\dx+", r"\drds", r"\dA+", r"\d pg_catalog.*", r"\dconfig *"]
    assert "pytest_dsql" not in psql(*commands)


def test_columns_that_a_primary_key_includes_are_named_once(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE covered (k int, v int, w int, PRIMARY KEY (k) INCLUDE (w))")
    sql = (
        "SELECT pg_get_constraintdef(oid), pg_get_indexdef(conindid) FROM pg_constraint"
        " WHERE conrelid = 'covered'::regclass"
    )
    ((key, index),) = rows(connection, sql)
    connection.execute("DROP TABLE covered")
    assert key == "PRIMARY KEY (k) INCLUDE (w, v)"
    assert index == "CREATE UNIQUE INDEX covered_pkey ON public.covered USING btree_index (k) INCLUDE (w, v)"


def test_there_are_no_triggers(connection: psycopg.Connection[Any], psql: Psql) -> None:
    connection.execute("CREATE TABLE child (k int PRIMARY KEY, parent int REFERENCES only_keys ON DELETE CASCADE)")
    connection.execute("COMMENT ON CONSTRAINT child_parent_fkey ON child IS 'whose'")
    assert rows(connection, "SELECT tgname FROM pg_trigger UNION SELECT evtname FROM pg_event_trigger") == []
    shown = psql(r"\d child", r"\dd", "DROP TABLE child")
    assert "FOREIGN KEY (parent) REFERENCES only_keys(k) ON DELETE CASCADE" in shown
    assert "whose" in shown


def test_a_role_with_a_mapping_is_kept_by_it(connection: psycopg.Connection[Any]) -> None:
    arn = "arn:aws:iam::123456789012:role/shop"
    connection.execute("CREATE ROLE shop WITH LOGIN")
    connection.execute(f"AWS IAM GRANT shop TO '{arn}'".encode())
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        connection.execute("DROP ROLE shop")
    assert refused.value.diag.message_detail == "privileges for view sys.iam_pg_role_mappings"
    connection.execute(f"AWS IAM REVOKE shop FROM '{arn}'".encode())
    connection.execute("DROP ROLE shop")


@pytest.mark.parametrize("owner", ["admin", "CURRENT_USER"])
def test_schema_public_is_not_among_what_is_owned(connection: psycopg.Connection[Any], owner: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="feature not supported on system entity"):
        connection.execute(f"DROP OWNED BY {owner} CASCADE".encode())
    assert rows(connection, "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'public'") == [("admin",)]


SYSTEM_VIEWS = [
    *(
        "pg_class",
        "pg_namespace",
        "pg_proc",
        "pg_type",
        "pg_constraint",
        "pg_tables",
        "pg_views",
        "pg_indexes",
        "pg_rules",
    ),
    *("pg_stats", "pg_sequences", "information_schema.tables", "information_schema.columns"),
    *("information_schema.routines", "information_schema.schemata", "information_schema.table_privileges"),
    *("information_schema.table_constraints", "information_schema.triggers", "information_schema.parameters"),
]


@pytest.mark.parametrize("name", SYSTEM_VIEWS)
def test_no_row_tells_of_the_engine(connection: psycopg.Connection[Any], name: str) -> None:
    columns = {
        "pg_class": "relname",
        "pg_namespace": "nspname",
        "pg_proc": "proname",
        "pg_type": "typname",
        "pg_constraint": "conname",
    }
    shown = f"x.{columns[name]}::text" if name in columns else "x::text"
    assert rows(connection, f"SELECT x FROM {name} AS x WHERE {shown} ~ 'pytest_dsql'") == []


def test_comments_are_found_by_the_catalogs_numbers(connection: psycopg.Connection[Any]) -> None:
    connection.execute("COMMENT ON TABLE only_keys IS 'nothing else'")
    found = "classoid = 'pg_class'::regclass AND objoid = 'only_keys'::regclass"
    assert rows(connection, f"SELECT description FROM pg_description WHERE {found}") == [("nothing else",)]
    assert rows(connection, "SELECT obj_description('only_keys'::regclass, 'pg_class')") == [("nothing else",)]


def test_there_is_one_role_at_first(connection: psycopg.Connection[Any]) -> None:
    visible = "SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_'"
    assert rows(connection, visible) == [("admin",)]
    assert rows(connection, "SELECT usename FROM pg_user") == [("admin",)]


@pytest.mark.parametrize(
    "name",
    [
        "pg_stat_activity",
        "pg_locks",
        "pg_prepared_statements",
        "pg_cursors",
        "pg_available_extensions",
        "pg_stat_user_tables",
        "pg_stat_wal",
    ],
)
def test_what_dsql_has_no_statistics_of_is_empty(connection: psycopg.Connection[Any], name: str) -> None:
    assert rows(connection, f"SELECT count(*) FROM {name}") == [(0,)]


def test_a_primary_key_of_sqlalchemys_and_djangos_queries_has_its_columns(
    connection: psycopg.Connection[Any],
) -> None:
    sql = """
        SELECT c.conname, array(
          SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx)
          JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx)::text[]
        FROM pg_constraint AS c WHERE c.conrelid = 't'::regclass AND c.contype = 'p'
    """
    assert rows(connection, sql) == [("t_pkey", ["w", "k"])]
    keys = """
        SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
          AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = 't'::regclass AND i.indisprimary ORDER BY 1
    """
    assert rows(connection, keys) == [("k",), ("w",)]


def test_settings_are_dsqls_wherever_they_are_read(connection: psycopg.Connection[Any]) -> None:
    values = {
        "server_version": "16.15",
        "server_version_num": "160015",
        "default_toast_compression": "lz4",
        "max_connections": "20",
        "work_mem": "128MB",
        "disable_sync_create_index": "on",
        "dsql.enable_batched_nestloop": "on",
    }
    cursor = connection.execute("SHOW ALL")
    assert cursor.statusmessage == "SHOW"
    assert [column.name for column in cursor.description or ()] == ["name", "setting", "description"]
    shown = {name: setting for name, setting, _ in cursor}
    assert {name: shown.get(name) for name in values} == values
    assert not [name for name in shown if "pytest" in name]
    for name, value in values.items():
        assert rows(connection, f"SHOW {name}") == [(value,)]
        assert rows(connection, f"SELECT current_setting('{name}')") == [(value,)]
    raw = dict(rows(connection, "SELECT name, setting FROM pg_settings"))
    assert {name: raw[name] for name in values} == values | {"work_mem": "131072"}
    connection.execute("SET disable_sync_create_index = off")
    found = "SELECT setting FROM pg_settings WHERE name = 'disable_sync_create_index'"
    assert rows(connection, found) == [("off",)]


ANSWERS = {
    "SELECT sys.cluster_size() > 0": True,
    "SELECT sys.cluster_size_limit()": 10 * 2**40,
    "SELECT sys.current_session_id() = sys.current_session_id()": True,
    "SELECT sys.base_type_oid('information_schema.sql_identifier'::regtype)::regtype::text": "name",
    "SELECT sys.base_type_oid('text'::regtype)::regtype::text": "text",
    "SELECT count(*) FROM sys.supported_datatypes()": 20,
    "SELECT sys.job_err_msg('aaaaaaaaaaaaaaaaaaaaaaaaaa')": None,
    "SELECT sys.iam_session_user()": "arn:aws:iam::000000000000:role/pytest-dsql-local",
}


@pytest.mark.parametrize(("sql", "answer"), ANSWERS.items())
def test_functions_of_sys_answer(connection: psycopg.Connection[Any], sql: str, answer: object) -> None:
    assert rows(connection, sql) == [(answer,)]


def test_sessions_and_transactions_have_ids_of_their_own(engine: Engine) -> None:
    sql = "SELECT sys.current_session_id(), sys.current_transaction_id()"
    with connect(engine) as one, connect(engine) as other:
        (first,), (second,), (third,) = rows(one, sql), rows(one, sql), rows(other, sql)
    assert first[0] == second[0] != third[0]
    assert len({first[1], second[1], third[1]}) == 3


def test_a_session_knows_that_it_is_encrypted(connection: psycopg.Connection[Any]) -> None:
    assert rows(connection, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
