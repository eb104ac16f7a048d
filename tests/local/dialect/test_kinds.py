"""Rules that hold for many statements, types and settings, and the order in which faults are found."""

from __future__ import annotations

import pytest

from pytest_dsql.local.dialect import Refusal
from tests.local.dialect.rule_cases import CACHE, column, refusal

UNSUPPORTED = {
    "LISTEN c": "Listen",
    "NOTIFY c, 'x'": "Notify",
    "UNLISTEN *": "Unlisten",
    "DECLARE c CURSOR FOR SELECT 1": "DeclareCursor",
    "FETCH 1 FROM c": "Fetch",
    "CLOSE c": "ClosePortal",
    "TRUNCATE t, u": "Truncate",
    "ALTER SYSTEM SET work_mem = 1": "AlterSystem",
    "CREATE EXTENSION hstore": "CreateExtension",
    "CREATE DATABASE d": "Createdb",
    "CREATE TABLE t AS SELECT 1": "CreateTableAs",
    "CREATE MATERIALIZED VIEW m AS SELECT 1": "CreateTableAs",
    "CREATE TYPE c AS (a int)": "CompositeType",
    "CREATE TYPE r AS RANGE (subtype = float8)": "CreateRange",
    "CREATE TABLESPACE s LOCATION 'x'": "CreateTableSpace",
    "CREATE FOREIGN TABLE f (k int) SERVER s": "CreateForeignTable",
    "CREATE POLICY p ON t": "CreatePolicy",
    "CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)": "Define",
    "ALTER TEXT SEARCH CONFIGURATION c DROP MAPPING FOR word": "AlterTSConfiguration",
    "PREPARE p AS SELECT 1": "Prepare",
    "EXECUTE p": "Execute",
    "DO 'BEGIN END'": "Do",
    "CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING": "Rule",
    "CREATE CAST (a AS b) WITHOUT FUNCTION": "CreateCast",
    'CREATE COLLATION c FROM "C"': "Define",
    "CREATE SERVER s FOREIGN DATA WRAPPER f": "CreateForeignServer",
    "CREATE PUBLICATION p": "CreatePublication",
    "ALTER FUNCTION f() STABLE": "AlterFunction",
    "ALTER ROLE r SET work_mem = 1": "AlterRoleSet",
    "REFRESH MATERIALIZED VIEW m": "RefreshMatView",
    "REINDEX TABLE t": "Reindex",
    "CLUSTER t": "Cluster",
}


@pytest.mark.parametrize(("sql", "name"), UNSUPPORTED.items())
def test_statements_are_refused_by_the_name_of_their_node(sql: str, name: str) -> None:
    assert refusal(sql) == Refusal("0A000", f"unsupported statement: {name}")


COLUMN_TYPES = {
    "money": "money",
    "inet": "inet",
    "bit(8)": "bit",
    "varchar(3)[]": "character varying[]",
    "timestamptz[][]": "timestamp with time zone[]",
    "tstzrange": "tstzrange",
    "pg_catalog.xml": "xml",
    "pg_lsn": "pg_lsn",
}


@pytest.mark.parametrize(("written", "shown"), COLUMN_TYPES.items())
@pytest.mark.parametrize(
    "sql", ["CREATE TABLE t (k int, v {} NOT NULL)", "ALTER TABLE t ADD v {}", "CREATE DOMAIN d AS {}"]
)
def test_column_types_are_refused_by_the_name_that_postgresql_shows(sql: str, written: str, shown: str) -> None:
    assert refusal(sql.format(written)) == Refusal("0A000", f"datatype {shown} not supported")


UNKNOWN_TYPES = ["thing[]", "mine.thing[]", "pg_catalog.serial", "mine.serial", "mine.money"]


@pytest.mark.parametrize("type_", UNKNOWN_TYPES)
def test_whether_a_type_exists_is_postgresqls_answer(type_: str) -> None:
    assert refusal(column(type_)) is None


SERIALS = {"serial": "serial", '"bigserial"': "bigserial", "serial4[]": "serial4[]"}


@pytest.mark.parametrize(("written", "shown"), SERIALS.items())
def test_serials_are_no_types(written: str, shown: str) -> None:
    assert refusal(column(written)) == Refusal("42704", f'type "{shown}" does not exist')


PLACES = {
    "SELECT t.ctid FROM t": "t.ctid",
    "SELECT 1 FROM s.t WHERE s.t.ctid = '(0,1)'": "s.t.ctid",
    "DELETE FROM t WHERE ctid IN (SELECT min(ctid) FROM t GROUP BY k)": '"ctid"',
    "INSERT INTO t VALUES (1) RETURNING ctid": '"ctid"',
    "CREATE VIEW v AS SELECT ctid FROM t": '"ctid"',
    'SELECT "ctid" FROM t': '"ctid"',
}


@pytest.mark.parametrize(("sql", "shown"), PLACES.items())
def test_rows_have_no_place(sql: str, shown: str) -> None:
    assert refusal(sql) == Refusal("42703", f"column {shown} does not exist")


NO_PLACES = [
    'SELECT "CTID" FROM t',
    "SELECT 'ctid' FROM t",
    "SELECT ctid.k FROM t AS ctid",
    "WITH c (ctid) AS (SELECT 1) SELECT ctid FROM c",
    "SELECT ctid FROM generate_series(1, 2) AS g (ctid)",
    "SELECT xmin, tableoid FROM t",
]


@pytest.mark.parametrize("sql", NO_PLACES)
def test_a_name_is_not_a_place(sql: str) -> None:
    assert refusal(sql) is None


GEOMETRY = {
    "SELECT CAST('(1,2)' AS point)": "point",
    "SELECT line '{1,2,3}'": "line",
    "SELECT pg_catalog.circle('<(0,0),1>')": "circle",
    "SELECT path('((0,0),(1,1))')": "path",
    "UPDATE t SET k = 1 WHERE lseg('[(0,0),(1,1)]') IS NULL": "lseg",
    "WITH x AS (SELECT polygon('((0,0),(1,1))')) SELECT 1 FROM x": "polygon",
}


@pytest.mark.parametrize(("sql", "type_"), GEOMETRY.items())
def test_nothing_becomes_geometry(sql: str, type_: str) -> None:
    assert refusal(sql) == Refusal("0A000", f"datatype {type_} not supported")


PARAMETERS = {
    "SET ROLE admin": "role",
    "SET LOCAL ROLE NONE": "role",
    "SET role = 'admin'": "role",
    "SET SESSION AUTHORIZATION admin": "session_authorization",
    'SET "Shop.Tenant" TO 1': "shop.tenant",
    "SET SESSION work_mem FROM CURRENT": "work_mem",
}


@pytest.mark.parametrize(("sql", "name"), PARAMETERS.items())
def test_parameters_are_refused_by_their_names(sql: str, name: str) -> None:
    assert refusal(sql) == Refusal("0A000", f'setting configuration parameter "{name}" not supported')


@pytest.mark.parametrize(
    "sql", ["RESET ROLE", "SET role TO DEFAULT", "RESET work_mem", "SET SESSION AUTHORIZATION DEFAULT"]
)
def test_every_parameter_can_be_reset(sql: str) -> None:
    assert refusal(sql) is None


@pytest.mark.parametrize("sql", ["RESET dsql.turbo", "SET dsql.turbo TO DEFAULT", 'SET LOCAL "DSQL.turbo" = 1'])
def test_a_reserved_prefix_is_reserved_in_every_form(sql: str) -> None:
    found = refusal(sql)
    assert found == Refusal(
        "42602", 'invalid configuration parameter name "dsql.turbo"', '"dsql" is a reserved prefix.'
    )


STORABLE = [
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "numeric",
    "numeric(1000)",
    "char(3)",
    "varchar(9)",
    "text",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "boolean",
    "bytea",
    "uuid",
    "json",
    "jsonb",
    "my_domain",
]


@pytest.mark.parametrize("type_", STORABLE)
def test_storable_types_are_accepted(type_: str) -> None:
    assert refusal(column(type_)) is None


# In the order in which DSQL checks them.
INDEX_ORDER = [
    ("CREATE INDEX CONCURRENTLY i ON t USING btree (a DESC)", "CONCURRENTLY not supported for CREATE INDEX"),
    ("CREATE INDEX i ON t USING btree (a DESC)", "USING not supported for CREATE INDEX"),
    ("CREATE INDEX i ON t (a DESC)", "unsupported mode. please use CREATE INDEX ASYNC."),
    ("CREATE INDEX ASYNC i ON t (a DESC)", "specifying sort order not supported for index keys"),
]


@pytest.mark.parametrize(("sql", "message"), INDEX_ORDER)
def test_index_faults_are_reported_in_order(sql: str, message: str) -> None:
    assert refusal(sql) == Refusal("0A000", message)


FIRST_COLUMN = {
    "CREATE TABLE t (a text[], b serial)": "datatype text[] not supported",
    "CREATE TABLE t (b serial, a text[])": 'type "serial" does not exist',
    "CREATE TABLE t (a int, b money, c xml[])": "datatype money not supported",
    "CREATE TABLE t (a varchar(70000), b char(5000))": (
        "Datatype limit greater than 65535 bytes not supported for varchar"
    ),
    'CREATE TABLE t (a text COLLATE "C", b int[])': "COLLATE clause not supported",
    "CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY, b int GENERATED ALWAYS AS IDENTITY)": (
        f"identity column is not supported {CACHE}"
    ),
    "ALTER TABLE t ADD COLUMN a money, ADD COLUMN b serial": "datatype money not supported",
    "CREATE UNLOGGED TABLE t (a serial)": "UNLOGGED table not supported for CREATE TABLE",
    "CREATE TABLE t (a int PRIMARY KEY DEFERRABLE, b serial)": 'type "serial" does not exist',
}


@pytest.mark.parametrize(("sql", "message"), FIRST_COLUMN.items())
def test_the_first_columns_fault_is_answered(sql: str, message: str) -> None:
    refused = refusal(sql)
    assert refused is not None
    assert refused.message == message


LOCKING = {
    "WITH x AS (SELECT k FROM t FOR SHARE) SELECT * FROM x": True,
    "WITH x AS (SELECT k FROM t) SELECT * FROM x FOR SHARE": False,
    "SELECT 5 FOR SHARE": False,
    "SELECT * FROM generate_series(1, 3) g FOR SHARE": False,
    "SELECT * FROM (VALUES (1)) v FOR SHARE": False,
    "SELECT * FROM t a, generate_series(1, 3) g FOR SHARE OF g": False,
    "SELECT * FROM t a JOIN u b USING (k) FOR SHARE OF b": True,
    "SELECT * FROM t FOR UPDATE FOR SHARE": True,
    "(SELECT k FROM t FOR SHARE) UNION ALL SELECT 1": True,
    "CREATE VIEW v AS SELECT k FROM t FOR NO KEY UPDATE": True,
    "EXPLAIN SELECT k FROM t FOR SHARE": True,
    "COPY (SELECT k FROM t FOR SHARE) TO STDOUT": True,
    "INSERT INTO u SELECT k FROM t FOR SHARE": True,
}


@pytest.mark.parametrize(("sql", "refused"), LOCKING.items())
def test_locking_clauses_are_refused_where_they_reach_a_table(sql: str, refused: bool) -> None:
    assert (refusal(sql) is not None) is refused


NESTED = {
    "EXPLAIN CREATE TABLE x AS SELECT 1": "unsupported statement: CreateTableAs",
    "EXPLAIN (ANALYZE, VERBOSE) EXECUTE p": "unsupported statement: Execute",
    "CREATE SCHEMA s CREATE TABLE t (v money)": "datatype money not supported",
    "CREATE SCHEMA s CREATE INDEX i ON t (v)": "unsupported mode. please use CREATE INDEX ASYNC.",
    "CREATE SCHEMA s CREATE SEQUENCE q CACHE 1 CREATE TEMP VIEW v AS SELECT 1": (
        "TEMPORARY or TEMP view not supported for CREATE VIEW"
    ),
    "WITH x AS (SELECT 1 AS k) SELECT * INTO y FROM x": "unsupported statement: CreateTableAs",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1; SELECT pg_advisory_lock(1) $$": (
        "function pg_advisory_lock not supported"
    ),
    "CREATE FUNCTION f() RETURNS int RETURN pg_advisory_lock(1)": "function pg_advisory_lock not supported",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT k FROM t FOR SHARE; END": (
        "locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported"
    ),
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET work_mem = '1MB' AS 'SELECT 1'": (
        'setting configuration parameter "work_mem" not supported'
    ),
    "CREATE VIEW v AS SELECT pg_advisory_lock(1)": "function pg_advisory_lock not supported",
    "UPDATE t SET v = (SELECT pg_try_advisory_lock(1))": "function pg_try_advisory_lock not supported",
    "CALL pg_advisory_lock(1)": "function pg_advisory_lock not supported",
}


@pytest.mark.parametrize(("sql", "message"), NESTED.items())
def test_rules_look_inside(sql: str, message: str) -> None:
    assert refusal(sql) == Refusal("0A000", message)
