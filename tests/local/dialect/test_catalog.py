"""The catalog and the rewritten statements on a real PostgreSQL 16, as a client's role sees them."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import date

import psycopg
import pytest
from psycopg import pq

from pytest_dsql.local.dialect import judge
from pytest_dsql.local.dialect.rulebook import rules
from pytest_dsql.local.installation import find_installation
from pytest_dsql.local.template import catalog_sql
from tests.plain_postgres import PlainPostgres, plain_postgres

TODAY = date(2026, 11, 1)
CATALOG = catalog_sql()


@pytest.fixture(scope="module")
def server() -> Iterator[PlainPostgres]:
    with plain_postgres(installation=find_installation()) as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            # As the engine does: without empty lines, as one command.
            connection.execute("\n".join(line for line in CATALOG.splitlines() if line.strip()))
        yield postgres


class Client:
    """Sends what the judge makes of a text."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        #: Texts that the judge refuses, sent all the same: it is not all that stands between them and the engine.
        self.unjudged: set[str] = set()

    def __call__(self, sql: str) -> pq.abc.PGresult:
        parts = judge(sql, TODAY).parts
        assert not any(part.refusal for part in parts) or sql in self.unjudged
        return self._connection.pgconn.exec_("".join(part.sql for part in parts).encode())

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        result = self(sql)
        assert result.status == pq.ExecStatus.TUPLES_OK, result.error_message
        return [
            tuple(
                value.decode() if value is not None else None
                for value in map(self._cell(result, row), range(result.nfields))
            )
            for row in range(result.ntuples)
        ]

    def cell(self, sql: str) -> str | None:
        ((value,),) = self.rows(sql)
        return value

    def error(self, sql: str) -> tuple[str, str]:
        result = self(sql)
        assert result.status == pq.ExecStatus.FATAL_ERROR
        sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        return sqlstate.decode(), message.decode()

    def done(self, *texts: str) -> None:
        for sql in texts:
            result = self(sql)
            assert result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK), result.error_message

    @staticmethod
    def _cell(result: pq.abc.PGresult, row: int) -> Callable[[int], bytes | None]:
        return lambda column: result.get_value(row, column)


def _client(server: PlainPostgres, role: str) -> Iterator[Client]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"SET SESSION AUTHORIZATION {role}")
        yield Client(connection)


@pytest.fixture
def admin(server: PlainPostgres) -> Iterator[Client]:
    for client in _client(server, "admin"):
        client.done("CREATE TABLE t (k int PRIMARY KEY, v text, n int, j jsonb)")
        client.done("INSERT INTO t SELECT g, 'x' || g, g % 5 FROM generate_series(1, 20) g")
        try:
            yield client
        finally:
            client("ROLLBACK")
            client.done("SET search_path TO public", "DROP TABLE t")


def _job(admin: Client, job_id: str | None) -> tuple[str | None, ...]:
    (job,) = admin.rows(
        f"SELECT status, details, job_type, class_id, object_name FROM sys.jobs WHERE job_id = '{job_id}'"
    )
    return job


def test_a_statement_that_is_executed_again_in_its_transaction_submits_the_same_job(admin: Client) -> None:
    admin.done("BEGIN")
    (first,) = admin.rows("CREATE INDEX ASYNC i ON t (v)")
    admin.done("ROLLBACK", "BEGIN")
    savepoint, back = ("SAVEPOINT s", "ROLLBACK TO s")
    admin.unjudged |= {savepoint, back}
    admin.done(savepoint)
    (second,) = admin.rows("CREATE INDEX ASYNC i ON t (v)")
    admin.done(back)
    (third,) = admin.rows("CREATE INDEX ASYNC i ON t (v)")
    admin.done("COMMIT")
    assert first != second == third


@pytest.fixture
def finished(server: PlainPostgres, admin: Client) -> Callable[[str], tuple[str | None, ...]]:
    """Submit a job, have it finished as the runner does, and give what `_job` gives."""

    def finish(sql: str) -> tuple[str | None, ...]:
        job_id = admin.cell(sql)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_isolation = 'read committed'")
            connection.execute("SELECT pytest_dsql_engine.finish_job(%s)", [job_id])
        return _job(admin, job_id)

    return finish


Finished = Callable[[str], tuple[str | None, ...]]


def test_an_index_is_submitted_and_listed_but_not_valid(admin: Client) -> None:
    result = admin("CREATE INDEX ASYNC i ON t (v)")
    assert (result.nfields, result.fname(0)) == (1, b"job_id")
    job_id = (result.get_value(0, 0) or b"").decode()
    assert set(job_id) <= set("abcdefghijklmnopqrstuvwxyz234567")
    assert len(job_id) == 26
    assert _job(admin, job_id) == ("submitted", None, "INDEX_BUILD", "1259", "public.i")
    assert admin.rows(f"SELECT update_time FROM sys.jobs WHERE job_id = '{job_id}'") == [(None,)]
    assert admin.rows("SELECT tableowner FROM pg_tables WHERE tablename = 't'") == [("admin",)]
    assert admin.cell("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass") == "f"


def test_an_index_is_valid_when_its_job_is_completed(admin: Client, finished: Finished) -> None:
    admin.done("SET enable_seqscan = off")
    plan = "EXPLAIN (COSTS OFF) SELECT v FROM t WHERE v = 'x1'"
    assert finished("CREATE INDEX ASYNC i ON t (v)")[:2] == ("completed", None)
    assert admin.cell("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass") == "t"
    assert "Index Only Scan using i on t" in str(admin.rows(plan))


def test_an_index_without_a_name_gets_postgresqls(admin: Client) -> None:
    job = admin.cell("CREATE INDEX ASYNC ON t (v, n)")
    assert _job(admin, job)[4] == "public.t_v_n_idx"


def test_an_index_that_exists_is_a_completed_job(admin: Client, finished: Finished) -> None:
    admin.done("CREATE INDEX ASYNC i ON t (v)")
    assert finished("CREATE INDEX ASYNC IF NOT EXISTS i ON t (v)")[0] == "completed"


@pytest.mark.parametrize(
    "keys", ["(n)", "((n / 2))", "(n) WHERE k > 5", "(b, b) NULLS NOT DISTINCT", "(lower(v), (n * 0))"]
)
def test_a_unique_build_over_duplicates_leaves_an_invalid_index_that_is_enforced(
    admin: Client, finished: Finished, keys: str
) -> None:
    admin.done("ALTER TABLE t ADD COLUMN b int", "UPDATE t SET v = 'X1' WHERE k = 2")
    assert finished(f"CREATE UNIQUE INDEX ASYNC u ON t {keys}")[:2] == (
        "failed",
        "found duplicate key(s) while validating index uniqueness",
    )
    assert admin.cell("SELECT indisvalid FROM pg_index WHERE indexrelid = 'u'::regclass") == "f"
    insert = "INSERT INTO t (k, v, n) SELECT k + 100, v, n FROM t WHERE k > 5"
    assert admin.error(insert)[0] == "23505"
    admin.done("DROP INDEX u", insert)


def test_duplicates_that_go_before_the_job_ends_do_no_harm(admin: Client, finished: Finished) -> None:
    admin.done("INSERT INTO t (k, n) VALUES (100, NULL), (101, NULL), (102, 77), (103, 77)")
    admin.done("DELETE FROM t WHERE k <= 20")
    job = admin.cell("CREATE UNIQUE INDEX ASYNC u ON t (n)")
    admin.done("DELETE FROM t WHERE k = 103")
    assert finished(f"SELECT '{job}'")[0] == "completed"
    assert admin.cell("SELECT indisvalid AND indisunique FROM pg_index WHERE indexrelid = 'u'::regclass") == "t"


def test_a_unique_constraint_adopts_a_finished_index(admin: Client, finished: Finished) -> None:
    adopt = "ALTER TABLE t ADD CONSTRAINT c UNIQUE USING INDEX u"
    job = admin.cell("CREATE UNIQUE INDEX ASYNC u ON t (v)")
    assert admin.error(adopt) == ("55000", 'index "u" is not valid')
    finished(f"SELECT '{job}'")
    admin.done(adopt)
    assert admin.error("INSERT INTO t (k, v) VALUES (100, 'x1')")[1].endswith('"c"')


@pytest.mark.parametrize(
    ("drop", "details"),
    [
        ("DROP INDEX i", 'relation "public.i" does not exist'),
        ("ALTER TABLE t DROP COLUMN n", 'relation "public.i" does not exist'),
    ],
)
def test_a_job_without_its_index_is_completed_and_says_so(
    admin: Client, finished: Finished, drop: str, details: str
) -> None:
    job = admin.cell("CREATE INDEX ASYNC i ON t (n)")
    admin.done(drop)
    assert finished(f"SELECT '{job}'")[:2] == ("completed", details)


def test_dropping_leaves_a_job_of_its_own(admin: Client) -> None:
    admin.done("CREATE TABLE gone (k int PRIMARY KEY, v int)", "CREATE INDEX ASYNC ON gone (v)")
    table = admin.cell("SELECT 'gone'::regclass::oid")
    admin.done("DROP TABLE gone")
    jobs = f"SELECT status FROM sys.jobs WHERE job_type = 'DROP' AND object_id = {table}"
    assert admin.rows(jobs) == [("submitted",)]


def test_an_expression_does_not_run_with_the_superusers_rights(admin: Client, finished: Finished) -> None:
    admin.done(
        "CREATE FUNCTION who(int) RETURNS boolean LANGUAGE sql AS $$ SELECT current_user = 'admin' $$",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (who(k)) NOT VALID",
    )
    assert finished("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c")[:2] == ("completed", None)
    reset = (
        "CREATE OR REPLACE FUNCTION who(int) RETURNS boolean LANGUAGE sql AS "
        "$$ RESET SESSION AUTHORIZATION; SELECT true $$"
    )
    admin.unjudged.add(reset)
    admin.done(
        reset,
        "ALTER TABLE t ADD CONSTRAINT d CHECK (who(k)) NOT VALID",
    )
    assert finished("ALTER TABLE ASYNC t VALIDATE CONSTRAINT d")[0] == "failed"
    admin.done("ALTER TABLE t DROP CONSTRAINT c", "ALTER TABLE t DROP CONSTRAINT d", "DROP FUNCTION who")


def test_an_index_may_be_made_at_once_on_an_empty_table_when_the_session_says_so(admin: Client) -> None:
    refusal = ("0A000", "unsupported mode. please use CREATE INDEX ASYNC.")
    admin.done("CREATE TABLE empty (k int)")
    assert admin.error("CREATE INDEX i ON empty (k)") == refusal
    admin.done("SET disable_sync_create_index = off")
    assert admin.error("CREATE INDEX i ON t (v)") == refusal
    assert admin.error("CREATE INDEX i ON nope (v)") == ("42P01", 'relation "nope" does not exist')
    admin.done("CREATE INDEX i ON empty (k)")
    assert admin.cell("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass") == "t"
    admin.done("DROP TABLE empty")


INDEX_ERRORS = {
    "CREATE INDEX ASYNC i ON nope (v)": ("42P01", 'relation "nope" does not exist'),
    "CREATE INDEX ASYNC i ON t (nope)": ("42703", 'column "nope" does not exist'),
    "CREATE INDEX ASYNC i ON t (j)": ("0A000", "datatype jsonb is not supported in a key"),
    "CREATE INDEX ASYNC i ON t ((j -> 'a'))": ("0A000", "datatype jsonb is not supported in a key"),
    "CREATE UNIQUE INDEX ASYNC i ON t ((j::json))": ("0A000", "datatype json is not supported in a key"),
    "CREATE INDEX ASYNC i ON t ((point(n, n)))": ("0A000", "datatype point is not supported in a key"),
    "CREATE INDEX ASYNC i ON t ((n + random()))": (
        "42P17",
        "functions in index expression must be marked IMMUTABLE",
    ),
    "CREATE INDEX ASYNC i ON t (n) INCLUDE ((lower(v)))": (
        "0A000",
        "expressions are not supported in included columns",
    ),
    "CREATE INDEX ASYNC IF NOT EXISTS ON t (v)": ("42601", 'syntax error at or near "ON"'),
    "CREATE INDEX ASYNC public.i ON t (v)": ("42601", 'syntax error at or near "."'),
    "ALTER TABLE ASYNC t VALIDATE CONSTRAINT nope": (
        "42704",
        'constraint "nope" of relation "t" does not exist',
    ),
}


@pytest.mark.parametrize(("sql", "error"), INDEX_ERRORS.items())
def test_postgresqls_own_errors_come_through(admin: Client, sql: str, error: tuple[str, str]) -> None:
    assert admin.error(sql) == error


def test_a_table_takes_24_indexes(admin: Client) -> None:
    admin.done(*(f"CREATE INDEX ASYNC i{number} ON t (v)" for number in range(23)))
    assert admin.error("CREATE INDEX ASYNC ON t (v)") == ("54000", "more than 24 indexes per table are not allowed")


def test_an_index_in_a_block_goes_with_the_block(admin: Client) -> None:
    admin.done("BEGIN")
    job = admin.cell("CREATE INDEX ASYNC i ON t (v)")
    admin.done("ROLLBACK")
    assert admin.rows(f"SELECT * FROM sys.jobs WHERE job_id = '{job}'") == []
    assert admin.error("DROP INDEX i") == ("42704", 'index "i" does not exist')
    admin.done("BEGIN; CREATE INDEX ASYNC i ON t (v); COMMIT", "DROP INDEX i")


def test_constraints_are_validated(admin: Client, finished: Finished) -> None:
    admin.done("ALTER TABLE t ADD CONSTRAINT good CHECK (k > 0) NOT VALID")
    admin.done("ALTER TABLE t ADD CONSTRAINT bad CHECK (k > 5) NOT VALID")
    good = finished("ALTER TABLE ASYNC t VALIDATE CONSTRAINT good")
    bad = finished("ALTER TABLE ASYNC t VALIDATE CONSTRAINT bad")
    assert good == ("completed", None, "VALIDATE_CONSTRAINT", "1259", "public.t")
    assert bad[:2] == ("failed", 'check constraint "bad" of relation "t" is violated by some row')
    assert admin.cell("SELECT convalidated FROM pg_constraint WHERE conname = 'good'") == "t"


def test_wait_for_job_is_a_procedure_that_knows_ids(admin: Client) -> None:
    assert admin.error("SELECT sys.wait_for_job('abc')") == ("42809", "sys.wait_for_job(unknown) is a procedure")
    assert admin.error("CALL sys.wait_for_job('abc')") == ("22P02", "Unable to convert text to UUID")
    assert admin.error("CALL sys.wait_for_job((SELECT 'abc'))") == ("0A000", "cannot use subquery in CALL argument")
    assert admin.error(f"CALL sys.wait_for_job('{'a' * 26}')")[0] == "P0002"


def test_waiting_for_a_job_of_ones_own_transaction_does_not_hang(admin: Client) -> None:
    admin.done("BEGIN")
    job = admin.cell("CREATE INDEX ASYNC i ON t (v)")
    assert admin.error(f"CALL sys.wait_for_job('{job}')")[0] == "55000"
    admin.done("ROLLBACK")


@pytest.mark.parametrize("number", [0, 0x00112233445566778899AABBCCDDEEFF, 2**128 - 1])
def test_job_ids_are_uuids_in_base32(admin: Client, number: int) -> None:
    value = uuid.UUID(int=number)
    written = base64.b32encode(value.bytes).decode().rstrip("=").lower()
    assert admin.cell(f"SELECT sys.uuid_to_base32_str('{value}')") == written
    assert admin.cell(f"SELECT sys.base32_str_to_uuid('{written}')") == str(value)


def test_primary_keys_keep_their_columns_and_their_constraint(admin: Client) -> None:
    assert admin.error("ALTER TABLE t DROP COLUMN k") == ("0A000", "cannot drop primary key column k")
    assert admin.error("ALTER TABLE t DROP CONSTRAINT t_pkey") == (
        "0A000",
        "unsupported ALTER TABLE DROP CONSTRAINT statement",
    )
    admin.done("ALTER TABLE t DROP COLUMN n, ADD COLUMN z numeric", "ALTER TABLE IF EXISTS nope DROP COLUMN x")
    admin.done("ALTER TABLE t ADD CONSTRAINT c CHECK (k > 0) NOT VALID", "ALTER TABLE t DROP CONSTRAINT c")
    assert admin.error("ALTER TABLE t DROP COLUMN n") == ("42703", 'column "n" of relation "t" does not exist')


def test_numeric_keeps_six_decimals(admin: Client) -> None:
    admin.done("ALTER TABLE t ADD COLUMN z numeric", "UPDATE t SET z = 3.14159265358979")
    assert admin.cell("SELECT DISTINCT z FROM t") == "3.141593"


ANSWERS = {
    "SELECT version()": "PostgreSQL 16",
    "SELECT pg_catalog.version()": "PostgreSQL 16",
    "SHOW server_version": "16.15",
    "SHOW server_version_num": "160015",
    "SELECT current_setting('server_version')": "16.15",
    "SELECT current_setting('Server_Version_Num', true)::int / 10000": "16",
    "SELECT current_setting('no_such', true)": None,
    "SHOW default_toast_compression": "lz4",
    "SHOW dsql.enable_batched_nestloop": "on",
    "SHOW disable_sync_create_index": "on",
    "SELECT sys.dsql_major_version()": "1",
    "SHOW timezone": "UTC",
    "SHOW transaction_isolation": "repeatable read",
    "SHOW is_superuser": "off",
    "SELECT current_user || current_database() || current_schema()": "adminpostgrespublic",
    "SELECT to_tsvector('fat cats')": "'cats':2 'fat':1",
    "SELECT set_config('application_name', 'x', false)": "x",
    "SELECT set_config('search_path', '', true)": "",
}


@pytest.mark.parametrize(("sql", "answer"), ANSWERS.items())
def test_answers(admin: Client, sql: str, answer: str | None) -> None:
    assert admin.cell(sql) == answer


ERRORS = {
    "SELECT current_setting('no_such')": ("42704", 'unrecognized configuration parameter "no_such"'),
    "SHOW lc_collate": ("42704", 'unrecognized configuration parameter "lc_collate"'),
    "SELECT to_tsvector('english', 'x')": ("42704", 'text search configuration "english" does not exist'),
    "SELECT set_config('statement' || '_timeout', '1', false)": (
        "0A000",
        'setting configuration parameter "statement_timeout" not supported',
    ),
    "SELECT set_config('search_path', 'public, \"pytest_dsql_' || 'engine\"', false)": (
        "22023",
        'invalid value for parameter "search_path": "public, "pytest_dsql_engine""',
    ),
    "SELECT set_config('role', 'admin', false)": (
        "0A000",
        'setting configuration parameter "role" not supported',
    ),
    "SELECT set_config('DSQL.turbo', 'on', false)": ("42602", 'invalid configuration parameter name "dsql.turbo"'),
    "SELECT set_config('dsql.enable_batched_nestloop', 'maybe', false)": (
        "22023",
        'parameter "dsql.enable_batched_nestloop" requires a Boolean value',
    ),
    "SELECT set_config('disable_sync_create_index', 'o', false)": (
        "22023",
        'parameter "disable_sync_create_index" requires a Boolean value',
    ),
    "CREATE TABLE big (v thing[])": ("42704", 'type "thing[]" does not exist'),
    "CREATE TABLE big (v pg_catalog.serial)": ("42704", 'type "pg_catalog.serial" does not exist'),
    "CREATE TABLE big (v t)": ("0A000", "datatype t not supported"),
    "CREATE TABLE big (v t[])": ("0A000", "datatype t[] not supported"),
    "CREATE DOMAIN big AS t": ("0A000", "datatype t not supported"),
    "CREATE DOMAIN big AS _text": ("0A000", "datatype text[] not supported"),
    "CREATE TABLE big (v numeric(1001))": ("22023", "NUMERIC precision 1001 must be between 1 and 1000"),
}


UNJUDGED_ERRORS = {
    "SELECT * FROM pytest_dsql_engine.job": ("42501", "permission denied for table job"),
    "CALL pytest_dsql_engine.forget_job('')": ("42501", "permission denied for procedure forget_job"),
}


@pytest.mark.parametrize(("sql", "error"), UNJUDGED_ERRORS.items())
def test_errors_of_what_is_refused_before_it_comes_here(admin: Client, sql: str, error: tuple[str, str]) -> None:
    admin.unjudged.add(sql)
    assert admin.error(sql) == error


@pytest.mark.parametrize(("sql", "error"), ERRORS.items())
def test_errors(admin: Client, sql: str, error: tuple[str, str]) -> None:
    assert admin.error(sql) == error


def test_a_parameter_that_postgresql_does_not_know_can_be_set(admin: Client) -> None:
    admin.done("SET disable_sync_create_index = off")
    assert admin.cell("SHOW disable_sync_create_index") == "off"
    admin.done("RESET ALL")
    assert admin.cell("SELECT current_setting('disable_sync_create_index')") == "on"


def test_set_config_sets_what_set_does() -> None:
    rule = next(rule for rule in rules() if rule.id == "parameter")
    body = CATALOG.partition("pg_catalog.set_config(text, text, boolean) RETURNS")[2].partition("]) THEN")[0]
    listed = {word.strip(" '\n") for word in body.partition("ARRAY[")[2].split(",")}
    # asyncpg switches `jit` off around its introspection.
    assert listed == {*rule.options["settable"], "jit"}


def test_a_function_may_hold_a_setting_that_it_may_not_set(admin: Client) -> None:
    admin.done(
        "CREATE FUNCTION headers() RETURNS text LANGUAGE sql AS $$ SELECT set_config('response.headers', '', true) $$"
    )
    refused = ("0A000", 'setting configuration parameter "response.headers" not supported')
    assert admin.error("SELECT headers()") == refused
    assert admin.error("SELECT set_config('response.headers', '', true)") == refused
    admin.done("DROP FUNCTION headers")


def test_text_search_knows_no_stemmers(admin: Client) -> None:
    templates = admin.rows("SELECT tmplname FROM pg_ts_template ORDER BY 1")
    assert templates == [("ispell",), ("simple",), ("synonym",), ("thesaurus",)]
    assert admin.rows("SELECT dictname FROM pg_ts_dict") == [("simple",)]


def test_a_function_of_a_client_spoils_no_index_of_others(server: PlainPostgres, admin: Client) -> None:
    index = "'pg_catalog.pg_proc_oid_index'::pg_catalog.regclass"
    body = f"SELECT pytest_dsql_engine.submit_job('INDEX_BUILD', {index}, NULL, false, false)"
    spoil = f"CREATE FUNCTION spoil() RETURNS text LANGUAGE sql AS $$ {body} $$"
    admin.unjudged.add(spoil)
    admin.done(spoil, "SELECT spoil()", "DROP FUNCTION spoil")
    assert admin.cell("SELECT indisvalid FROM pg_index WHERE indexrelid = 'pg_proc_oid_index'::regclass") == "t"


def test_parameters_are_not_set_through_their_view(admin: Client) -> None:
    sql = "UPDATE pg_settings SET setting = 'serializable' WHERE name = 'default_transaction_isolation'"
    assert admin.error(sql)[0] == "42501"


def test_nothing_is_temporary(admin: Client) -> None:
    assert admin.error("CREATE SEQUENCE pg_temp.x CACHE 1")[0] == "42501"


@pytest.mark.parametrize("encoding", ["SJIS", "big5", "windows-936", "UHC", "GB18030", "johab", "SHIFT_JIS_2004"])
def test_encodings_that_hide_backslashes_are_not_taken(admin: Client, encoding: str) -> None:
    refusal = ("0A000", f'invalid value for parameter "client_encoding": "{encoding}"')
    assert admin.error(f"SET client_encoding = '{encoding}'") == refusal
    assert admin.error(f"SELECT set_config('client_' || 'encoding', '{encoding}', false)") == refusal


def test_iam_identities_are_mapped_to_roles(admin: Client) -> None:
    arn = "arn:aws:iam::123456789012:role/reporting"
    admin.done("CREATE ROLE reader WITH LOGIN", "CREATE ROLE group_ NOLOGIN")
    admin.done(f"AWS IAM GRANT reader TO '{arn}'", f"AWS IAM GRANT reader TO '{arn}'")
    mappings = "SELECT arn, pg_role_name, grantor_pg_role_name FROM sys.iam_pg_role_mappings"
    assert admin.rows(mappings) == [(arn, "reader", "admin")]
    assert admin.error("DROP ROLE reader") == (
        "2BP01",
        'role "reader" cannot be dropped because some objects depend on it',
    )
    assert admin.error(f"AWS IAM GRANT ghost TO '{arn}'") == ("42704", 'role "ghost" does not exist')
    assert admin.error(f"AWS IAM GRANT group_ TO '{arn}'")[1] == "role group_ must have the LOGIN attribute"
    assert admin.error("AWS IAM GRANT reader TO 'reporting'")[1] == "IAM role must look like an IAM ARN"
    admin.done(f"AWS IAM REVOKE reader FROM '{arn}'")
    assert admin.rows(mappings) == []
    admin.done("DROP ROLE reader", "DROP ROLE group_")


def test_other_roles_get_what_admin_gives_them(server: PlainPostgres, admin: Client) -> None:
    admin.done("CREATE ROLE other WITH LOGIN", "CREATE SCHEMA theirs", "GRANT CREATE, USAGE ON SCHEMA theirs TO other")
    admin.done("GRANT SELECT ON t TO other")
    for other in _client(server, "other"):
        assert other.error("CREATE TABLE mine (k int)") == ("42501", "permission denied for schema public")
        assert other.error("DELETE FROM t") == ("42501", "permission denied for table t")
        assert other.error("CREATE INDEX ASYNC ON t (v)") == ("42501", "must be owner of table t")
        assert other.error("AWS IAM GRANT other TO 'arn:aws:iam::123456789012:role/x'") == (
            "42501",
            "permission denied to grant IAM trust with role other",
        )
        assert other.cell("SELECT count(*) FROM t") == "20"
        other.done(
            "CREATE TABLE theirs.mine (k int)", "CREATE INDEX ASYNC ON theirs.mine (k)", "DROP TABLE theirs.mine"
        )
    admin.done("DROP SCHEMA theirs", "REVOKE ALL ON t FROM other", "DROP ROLE other")


def test_psqls_own_queries_pass_unharmed(server: PlainPostgres, admin: Client) -> None:
    commands = [r"\d", r"\d t", r"\d+ t", r"\dt", r"\di", r"\dv", r"\dn", r"\du", r"\df", r"\dp", r"\l", r"\ds", r"\dT"]
    arguments = [argument for command in commands for argument in ("-c", command)]
    conninfo = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    environment = {name: server.conninfo()[key] for key, name in conninfo.items()}
    psql = subprocess.run(
        [server.installation.program("psql"), "-X", "-E", "-v", "ON_ERROR_STOP=1", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    mark = "********* QUERY **********\n"
    queries = [text.partition("\n**************************")[0] for text in psql.stdout.split(mark)[1:]]
    assert len(queries) >= len(commands)
    admin.done(*queries)


def test_asyncpgs_introspection_passes_unharmed(server: PlainPostgres) -> None:
    import asyncpg
    from asyncpg import introspection

    texts = [text for name, text in vars(introspection).items() if name.isupper() and isinstance(text, str)]
    assert texts
    assert not any(part.refusal for text in texts for part in judge(text, TODAY).parts)

    async def learn() -> object:
        parameters = server.conninfo()
        connection = await asyncpg.connect(
            host=parameters["host"],
            port=int(parameters["port"]),
            user=parameters["user"],
            password=parameters["password"],
            database=parameters["dbname"],
        )
        try:
            await connection.execute("CREATE DOMAIN learnt AS text")
            return await connection.fetchval("SELECT ARRAY['a'::learnt]")
        finally:
            await connection.execute("DROP DOMAIN learnt")
            await connection.close()

    assert asyncio.run(learn()) == ["a"]


CLIENT_QUERIES = [
    # What clients and object-relational mappers send by themselves.
    "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new",
    "SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid FROM pg_type t WHERE t.oid = to_regtype($1)",
    "show standard_conforming_strings",
    "show transaction isolation level",
    "select pg_catalog.version()",
    (
        "SELECT c.relname, CASE WHEN c.relkind IN ('m', 'v') THEN 'v' ELSE 't' END FROM pg_catalog.pg_class c "
        "LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE pg_catalog.pg_table_is_visible(c.oid)"
    ),
    "SELECT pg_catalog.set_config('search_path', '', false)",
    (
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0"
    ),
    "SELECT 1 FROM pg_catalog.pg_locks WHERE locktype = 'advisory'",
    "SET extra_float_digits = 3",
    "SET application_name = 'PostgreSQL JDBC Driver'",
    "SET NAMES 'UTF8'",
    "SET TIME ZONE 'UTC'",
    "SET DATESTYLE TO 'ISO'",
]


@pytest.mark.parametrize("sql", CLIENT_QUERIES)
def test_what_clients_send_by_themselves_passes(sql: str) -> None:
    assert not any(part.refusal for part in judge(sql, TODAY).parts)
