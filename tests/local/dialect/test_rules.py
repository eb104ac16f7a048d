"""Each rule: a statement that it refuses, with which SQLSTATE and text, and a neighbour that it does not refuse."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import pytest

from pytest_dsql.local.dialect import Refusal, judge
from pytest_dsql.local.dialect.rulebook import Rule, rules

TODAY = date(2026, 11, 1)


class Case(NamedTuple):
    refused: str
    message: str
    accepted: str
    sqlstate: str = "0A000"


def _column(type_: str) -> str:
    return f"CREATE TABLE t (k int, v {type_})"


CACHE = "without an explicit cache size. please define CACHE greater than or equal to 65536 or equal to 1"
ADD = "ALTER TABLE t ADD CONSTRAINT c "

CASES = {
    # statements.toml
    "savepoint": Case("SAVEPOINT s", "unsupported transaction statement: SAVEPOINT", "BEGIN"),
    "release-savepoint": Case("RELEASE SAVEPOINT s", "unsupported transaction statement: RELEASE", "COMMIT"),
    "rollback-to-savepoint": Case("ROLLBACK TO s", "unsupported transaction statement: ROLLBACK TO", "ROLLBACK"),
    "prepare-transaction": Case(
        "PREPARE TRANSACTION 'x'", "unsupported transaction statement: PREPARE TRANSACTION", "COMMIT AND NO CHAIN"
    ),
    "commit-prepared": Case("COMMIT PREPARED 'x'", "unsupported transaction statement: COMMIT PREPARED", "END"),
    "rollback-prepared": Case("ROLLBACK PREPARED 'x'", "unsupported transaction statement: ROLLBACK PREPARED", "ABORT"),
    "isolation-level": Case(
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "Unsupported isolation level: SERIALIZABLE",
        "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    ),
    "statement": Case("LOCK TABLE t", "unsupported statement: Lock", "DELETE FROM t"),
    "statement-by-pattern": Case("DISCARD ALL", "unsupported statement: Discard", "RESET ALL"),
    "deallocate-one": Case("DEALLOCATE p", "unsupported statement: Deallocate", "DEALLOCATE ALL"),
    "vacuum": Case("VACUUM t", "unsupported VACUUM statement", "ANALYZE t"),
    "analyze-form": Case("ANALYZE t (v)", "unsupported ANALYZE statement", "ANALYZE VERBOSE s.t"),
    "reassign-system-owner": Case(
        "REASSIGN OWNED BY r, admin TO s", "feature not supported on system entity", "REASSIGN OWNED BY r TO admin"
    ),
    "copy-file": Case(
        "COPY t FROM PROGRAM 'cat'",
        "unsupported COPY statement: only STDIN and STDOUT are supported",
        "COPY t FROM STDIN",
    ),
    "trigger": Case(
        "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE TRIGGER not supported",
        "CREATE VIEW trigger AS SELECT 1",
    ),
    "enum-type": Case("CREATE TYPE e AS ENUM ('a')", "CREATE TYPE not supported", "CREATE DOMAIN e AS text"),
    "alter-type": Case("ALTER TYPE e ADD VALUE 'b'", "ALTER TYPE not supported", "ALTER DOMAIN e SET DEFAULT 'b'"),
    "alter-type-by-pattern": Case("ALTER TYPE e OWNER TO r", "ALTER TYPE not supported", "ALTER TABLE e SET SCHEMA s"),
    "rename-type": Case(
        "ALTER TYPE e RENAME TO f", "unsupported object in RENAME statement", "ALTER TABLE e RENAME TO f"
    ),
    "rename-by-pattern": Case(
        "ALTER TRIGGER g ON t RENAME TO h", "unsupported object in RENAME statement", "ALTER INDEX g RENAME TO h"
    ),
    "drop-type": Case("DROP TYPE IF EXISTS e", "unsupported object in DROP statement", "DROP DOMAIN IF EXISTS e"),
    "drop-by-pattern": Case("DROP EXTENSION x", "unsupported object in DROP statement", "DROP VIEW x"),
    "drop-domain-cascade": Case("DROP DOMAIN d CASCADE", "DROP DOMAIN with CASCADE unsupported", "DROP DOMAIN d"),
    "drop-index-concurrently": Case(
        "DROP INDEX CONCURRENTLY i", "DROP INDEX CONCURRENTLY must be first action in transaction", "DROP INDEX i"
    ),
    "procedure": Case(
        "CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'",
        "PROCEDURE is not supported",
        "CREATE FUNCTION p() RETURNS int RETURN 1",
    ),
    "function-language": Case(
        "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'",
        "CREATE FUNCTION with language plpgsql not supported",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ),
    "function-result": Case(
        "CREATE FUNCTION f() RETURNS SETOF int4range RETURN int4range(1, 2)",
        "datatype int4range not supported",
        "CREATE FUNCTION f(r int4range) RETURNS int RETURN lower(r)",
    ),
    "grant-on-database": Case(
        "GRANT CONNECT ON DATABASE postgres TO r", "unsupported object type in GRANT", "GRANT SELECT ON t TO r"
    ),
    "grant-by-pattern": Case(
        "GRANT USAGE ON LANGUAGE sql TO r", "unsupported object type in GRANT", "REVOKE ALL ON t FROM r"
    ),
    "grant-on-system-schema": Case(
        "GRANT USAGE ON SCHEMA public TO r",
        "feature not supported on system entity",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO r",
    ),
    "default-privileges-early": Case(
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO r",
        "unsupported statement: AlterDefaultPrivileges",
        "GRANT r TO s",
    ),
    "statistics-early": Case("CREATE STATISTICS s ON a, b FROM t", "unsupported statement: CreateStats", "ANALYZE t"),
    "temporary-view": Case(
        "CREATE TEMP VIEW v AS SELECT 1",
        "TEMPORARY or TEMP view not supported for CREATE VIEW",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
    ),
    "alter-domain": Case(
        "ALTER DOMAIN d SET NOT NULL", "unsupported statement: AlterDomain", "ALTER DOMAIN d DROP NOT NULL"
    ),
    "chained-transaction": Case(
        "ROLLBACK AND CHAIN", "unsupported transaction statement: AND CHAIN", "ROLLBACK AND NO CHAIN"
    ),
    "alter-role": Case("ALTER USER r PASSWORD 'x'", "unsupported statement: AlterRole", "ALTER GROUP r ADD USER s"),
    "alter-owner-by-pattern": Case(
        "ALTER AGGREGATE a (int) OWNER TO r", "unsupported statement: AlterOwner", "ALTER FUNCTION f() OWNER TO r"
    ),
    "alter-role-setting": Case(
        "ALTER ROLE r SET work_mem TO DEFAULT", "unsupported statement: AlterRoleSet", "ALTER ROLE r RESET ALL"
    ),
    "alter-dependency": Case(
        "ALTER INDEX i DEPENDS ON EXTENSION x",
        "unsupported statement: AlterObjectDepends",
        "ALTER FUNCTION f() RENAME TO g",
    ),
    "system-schema": Case("DROP SCHEMA s, public", "feature not supported on system entity", "DROP SCHEMA s CASCADE"),
    "rename-system-schema": Case(
        "ALTER SCHEMA public RENAME TO s", "feature not supported on system entity", "ALTER SCHEMA s RENAME TO t"
    ),
    "own-system-schema": Case(
        "ALTER SCHEMA public OWNER TO r", "feature not supported on system entity", "ALTER SCHEMA s OWNER TO r"
    ),
    "statistics-target": Case(
        "ALTER STATISTICS s SET STATISTICS 101",
        "statistics target 101 exceeds maximum allowed value of 100",
        "ALTER STATISTICS s SET STATISTICS -1",
        "22023",
    ),
    "drop-statistics-early": Case("DROP STATISTICS s", "unsupported object in DROP statement", "DROP SEQUENCE s"),
    "engine-schema": Case(
        "CREATE SCHEMA pytest_dsql_engine_mine",
        'unacceptable schema name "pytest_dsql_engine_mine"',
        "CREATE SCHEMA my_pytest_dsql_engine",
        "42939",
    ),
    "rename-to-engine-schema": Case(
        "ALTER SCHEMA s RENAME TO pytest_dsql_engine2",
        'unacceptable schema name "pytest_dsql_engine2"',
        "ALTER TABLE s RENAME TO pytest_dsql_engine2",
        "42939",
    ),
    "function-body": Case(
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'SELECT 1; DROP TABLE t'",
        "unsupported statement in CREATE FUNCTION: Drop",
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$DELETE FROM t; SELECT 'DROP TABLE t'$$",
    ),
    # sequences.toml
    "unlogged-sequence": Case(
        "CREATE UNLOGGED SEQUENCE s CACHE 1",
        "UNLOGGED sequence not supported for CREATE SEQUENCE",
        "CREATE SEQUENCE unlogged CACHE 1",
    ),
    "alter-sequence-type": Case(
        "ALTER SEQUENCE s AS smallint",
        "datatype smallint not supported, sequence type must be bigint",
        "ALTER SEQUENCE s AS bigint RESTART",
    ),
    "alter-sequence-cache": Case(
        "ALTER SEQUENCE s CACHE 2",
        "ALTER SEQUENCE is not supported without a supported cache size."
        " please define CACHE greater than or equal to 65536 or equal to 1",
        "ALTER SEQUENCE s INCREMENT 2",
    ),
    "sequence-early": Case("CREATE SEQUENCE s CACHE 1", "unsupported statement: CreateSeq", "DROP SEQUENCE s"),
    "temporary-sequence": Case(
        "CREATE TEMP SEQUENCE s CACHE 1",
        "TEMPORARY or TEMP sequence not supported for CREATE SEQUENCE",
        "CREATE SEQUENCE IF NOT EXISTS s CACHE 1",
    ),
    "sequence-type": Case(
        "CREATE SEQUENCE s AS integer CACHE 1",
        "datatype integer not supported, sequence type must be bigint",
        "CREATE SEQUENCE s AS bigint CACHE 1",
    ),
    "sequence-cache": Case(
        "CREATE SEQUENCE s CACHE 65535",
        f"CREATE SEQUENCE is not supported {CACHE}",
        "CREATE SEQUENCE s CACHE 100000000000",
    ),
    # settings.toml
    "set-isolation-level": Case(
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "Unsupported isolation level: SERIALIZABLE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    ),
    "set-transaction": Case(
        "SET TRANSACTION READ ONLY",
        'setting configuration parameter "TRANSACTION" not supported',
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    ),
    "batched-nestloop-early": Case(
        "SET dsql.enable_batched_nestloop = on",
        'invalid configuration parameter name "dsql.enable_batched_nestloop"',
        "SET enable_nestloop = on",
        "42602",
    ),
    "reserved-parameter-prefix": Case(
        "SET dsql.turbo = on",
        'invalid configuration parameter name "dsql.turbo"',
        "SET dsql.enable_batched_nestloop = off",
        "42602",
    ),
    "parameter": Case(
        "SET LOCAL Statement_Timeout TO 5",
        'setting configuration parameter "statement_timeout" not supported',
        "SET statement_timeout TO DEFAULT",
    ),
    "boolean-parameter": Case(
        "SET dsql.enable_batched_nestloop = 'maybe'",
        'parameter "dsql.enable_batched_nestloop" requires a Boolean value',
        "SET dsql.enable_batched_nestloop = 'YE'",
        "22023",
    ),
    "reset-all-early": Case("RESET ALL", "RESET ALL not supported", "RESET search_path"),
    "engine-search-path": Case(
        "SET search_path = public, pytest_dsql_engine",
        'invalid value for parameter "search_path": "pytest_dsql_engine"',
        "SET search_path = sys, 'pytest'",
        "22023",
    ),
    # queries.toml
    "for-update-early": Case(
        "SELECT k FROM t WHERE k > 1 FOR UPDATE",
        "locking clause such as FOR UPDATE can be applied only on tables with equality predicates on the key",
        "SELECT k FROM t WHERE v > 1 AND k = 1 FOR UPDATE",
    ),
    "merge": Case(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN DELETE",
        "unsupported statement type: MERGE",
        "DELETE FROM t USING s WHERE t.k = s.k",
    ),
    "select-into": Case("SELECT 1 INTO x", "unsupported statement: CreateTableAs", "INSERT INTO x SELECT 1"),
    "table-sample": Case(
        "SELECT k FROM t TABLESAMPLE SYSTEM (5)", "TABLESAMPLE clause not supported", "SELECT k AS tablesample_ FROM t"
    ),
    "locking-clause": Case(
        "SELECT * FROM (SELECT k FROM t) s FOR NO KEY UPDATE",
        "locking clauses other than FOR UPDATE/FOR KEY SHARE are not supported",
        "SELECT k FROM t FOR KEY SHARE NOWAIT",
    ),
    "locking-clause-early": Case(
        "SELECT k FROM t FOR KEY SHARE",
        "locking clauses other than FOR UPDATE are not supported",
        "SELECT k FROM t WHERE k = 1 FOR UPDATE SKIP LOCKED",
    ),
    "advisory-lock": Case(
        "SELECT pg_advisory_lock(1)", "function pg_advisory_lock not supported", "SELECT mine.pg_advisory_lock(1)"
    ),
    "function-by-pattern": Case(
        "SELECT pg_advisory_xact_lock(1)",
        "function pg_advisory_xact_lock not supported",
        "SELECT pg_sleep(0)",
    ),
    "geometric-constructor": Case(
        "SELECT line('{1,-1,0}')", "datatype line not supported", "SELECT line FROM t WHERE line = 'a'"
    ),
    "geometric-cast-by-pattern": Case(
        "SELECT k FROM t WHERE '(1,2)'::point IS NULL",
        "datatype point not supported",
        "SELECT '1.2.3.4'::inet, '[1,2)'::int4range",
    ),
    "geometric-call-by-pattern": Case(
        "SELECT box('(1,1),(2,2)'::text)", "datatype box not supported", "SELECT box(a) FROM t"
    ),
    "row-place": Case(
        "SELECT ctid FROM t",
        'column "ctid" does not exist',
        "SELECT ctid FROM (SELECT 1 AS ctid) s",
        "42703",
    ),
    "engine-function": Case(
        "SELECT pytest_dsql_engine.submit('a')",
        "function pytest_dsql_engine.submit does not exist",
        "SELECT sys.submit('pytest_dsql_engine')",
        "42883",
    ),
    "engine-relation": Case(
        "SELECT * FROM pytest_dsql_engine.jobs",
        'relation "pytest_dsql_engine.jobs" does not exist',
        "SELECT 'pytest_dsql_engine.jobs' FROM jobs",
        "42P01",
    ),
    "renamed-function": Case(
        "SELECT set_config_by_name('work_mem', '1', false)",
        "function set_config_by_name does not exist",
        "SELECT version()",
        "42883",
    ),
    # indexes.toml
    "index-concurrently": Case(
        "CREATE INDEX CONCURRENTLY i ON t USING btree (v DESC)",
        "CONCURRENTLY not supported for CREATE INDEX",
        "CREATE INDEX ASYNC i ON t (v)",
    ),
    "index-using": Case(
        "CREATE INDEX i ON t USING btree (v)",
        "USING not supported for CREATE INDEX",
        "CREATE INDEX ASYNC i ON t (\"USING\", (v || 'USING'))",
    ),
    "index-mode": Case(
        "CREATE UNIQUE INDEX async1 ON t (v DESC)",
        "unsupported mode. please use CREATE INDEX ASYNC.",
        "CREATE UNIQUE INDEX async ON t (v)",
    ),
    "index-storage-parameters": Case(
        "CREATE INDEX ASYNC i ON t (v) WITH (fillfactor = 70)",
        "WITH not supported for CREATE INDEX",
        "CREATE INDEX ASYNC i ON t (v) INCLUDE (w)",
    ),
    "index-tablespace": Case(
        "CREATE INDEX ASYNC i ON t (v) TABLESPACE x",
        "TABLESPACE not supported for CREATE INDEX",
        "CREATE UNIQUE INDEX ASYNC i ON t (v) NULLS NOT DISTINCT",
    ),
    "partial-index-early": Case(
        "CREATE INDEX ASYNC i ON t (v) WHERE v > 1",
        "WHERE not supported for CREATE INDEX",
        "CREATE INDEX ASYNC ON t (v)",
    ),
    "index-expression-early": Case(
        "CREATE INDEX ASYNC i ON t (lower(v))",
        "expressions not supported for index keys",
        "CREATE INDEX ASYNC i ON t (v)",
    ),
    "index-sort-order": Case(
        "CREATE INDEX ASYNC i ON t (k, v ASC)",
        "specifying sort order not supported for index keys",
        "CREATE INDEX ASYNC i ON t (v NULLS FIRST)",
    ),
    "index-operator-class": Case(
        "CREATE INDEX ASYNC i ON t (v text_pattern_ops)",
        "opclass not supported for index keys",
        "CREATE INDEX ASYNC IF NOT EXISTS i ON t (v)",
    ),
    "index-key-count": Case(
        "CREATE INDEX ASYNC i ON t (a, b, c, d, e, f, g, h, i)",
        "more than 8 column keys in an index are not supported",
        "CREATE INDEX ASYNC i ON t (a, b, c, d, e, f, g, h) INCLUDE (i)",
        "54011",
    ),
    "index-collation": Case(
        'CREATE INDEX ASYNC i ON t (v COLLATE "C")', "COLLATE clause not supported", "CREATE INDEX ASYNC i ON t (v)"
    ),
    # tables.toml
    "temporary-schema": Case(
        "CREATE TABLE pg_temp.t (k int)",
        "TEMPORARY or TEMP table not supported for CREATE TABLE",
        "CREATE TABLE temp.t (k int)",
    ),
    "key-storage-parameters": Case(
        "CREATE TABLE t (k int PRIMARY KEY WITH (fillfactor = 70))",
        "WITH clause not supported for CREATE TABLE",
        "CREATE TABLE t (k int, UNIQUE (k) INCLUDE (v))",
    ),
    "key-tablespace": Case(
        "CREATE TABLE t (k int, PRIMARY KEY (k) USING INDEX TABLESPACE x)",
        "TABLESPACE clause not supported for CREATE TABLE",
        "CREATE TABLE t (k int UNIQUE NULLS NOT DISTINCT)",
    ),
    "numeric-precision-early": Case(
        _column("numeric(39, 2)"),
        "NUMERIC precision 39 must be between 1 and 38",
        _column("numeric(38, 37)"),
        "22023",
    ),
    "numeric-scale-early": Case(
        _column("numeric(38, 38)"), "NUMERIC scale 38 must be between 0 and 37", _column("numeric(38)"), "22023"
    ),
    "change-identity-cache": Case(
        "ALTER TABLE t ALTER COLUMN k SET CACHE 2",
        f"identity column is not supported {CACHE}",
        "ALTER TABLE t ALTER COLUMN k SET CACHE 1 SET INCREMENT BY 2 RESTART",
    ),
    "alter-identity-early": Case(
        "ALTER TABLE t ALTER COLUMN k DROP IDENTITY",
        "unsupported ALTER TABLE ALTER COLUMN ... DROP IDENTITY statement",
        "ALTER TABLE t ALTER COLUMN k DROP DEFAULT",
    ),
    "alter-index": Case(
        "ALTER INDEX i SET (fillfactor = 70)", "unsupported statement: AlterIndex", "ALTER INDEX i RENAME TO j"
    ),
    "alter-sequence-action": Case(
        "ALTER SEQUENCE s SET UNLOGGED",
        "unsupported ALTER SEQUENCE SET UNLOGGED statement",
        "ALTER SEQUENCE s OWNER TO r",
    ),
    "temporary-table": Case(
        "CREATE TEMP TABLE t (k int)",
        "TEMPORARY or TEMP table not supported for CREATE TABLE",
        "CREATE TABLE temp (k int)",
    ),
    "unlogged-table": Case(
        "CREATE UNLOGGED TABLE t (k int)",
        "UNLOGGED table not supported for CREATE TABLE",
        "CREATE TABLE unlogged (k int)",
    ),
    "partitioned-table": Case(
        "CREATE TABLE t (k int) PARTITION BY RANGE (k)",
        "PARTITION BY clause not supported for CREATE TABLE",
        "CREATE TABLE t (partition int)",
    ),
    "partition": Case(
        "CREATE TABLE t PARTITION OF p FOR VALUES IN (1)",
        "PARTITION OF clause not supported for CREATE TABLE",
        "CREATE TABLE t (LIKE p)",
    ),
    "inheritance": Case(
        "CREATE TABLE t (k int) INHERITS (p)",
        "INHERITS clause not supported for CREATE TABLE",
        "CREATE TABLE t (LIKE p INCLUDING DEFAULTS)",
    ),
    "typed-table": Case("CREATE TABLE t OF c", "OF clause not supported for CREATE TABLE", "CREATE TABLE t ()"),
    "storage-parameters": Case(
        "CREATE TABLE t (k int) WITH (fillfactor = 70)",
        "WITH clause not supported for CREATE TABLE",
        "CREATE TABLE IF NOT EXISTS t (k int)",
    ),
    "on-commit": Case(
        "CREATE TABLE t (k int) ON COMMIT DROP",
        "ON COMMIT clause not supported for CREATE TABLE",
        "CREATE TABLE t (k int REFERENCES p ON DELETE CASCADE)",
    ),
    "table-tablespace": Case(
        "CREATE TABLE t (k int) TABLESPACE x",
        "TABLESPACE clause not supported for CREATE TABLE",
        "CREATE TABLE t (tablespace int)",
    ),
    "table-access-method": Case(
        "CREATE TABLE t (k int) USING heap", "USING clause not supported for CREATE TABLE", "CREATE TABLE heap (k int)"
    ),
    "alter-composite-type": Case(
        "ALTER TYPE c ADD ATTRIBUTE a int", "ALTER TYPE not supported", "ALTER TABLE c ADD COLUMN a int"
    ),
    "serial-type": Case(
        _column("bigserial NOT NULL"), 'type "bigserial" does not exist', 'CREATE TABLE t ("serial" int)', "42704"
    ),
    "array-type": Case(_column("int[]"), "datatype integer[] not supported", "SELECT ARRAY[1]::int[]"),
    "column-type": Case(_column("bit varying(8)"), "datatype bit varying not supported", _column("mine.money")),
    "column-type-by-pattern": Case(_column('"char"'), 'datatype "char" not supported', _column("char")),
    "json-early": Case(_column("json"), "datatype json not supported", _column("text")),
    "jsonb-early": Case(_column("jsonb"), "datatype jsonb not supported", _column("text")),
    "char-length": Case(
        _column("char(4097)"),
        "Datatype limit greater than 4096 bytes not supported for char",
        _column("char(4096)"),
        "54000",
    ),
    "varchar-length": Case(
        _column("varchar(65536)"),
        "Datatype limit greater than 65535 bytes not supported for varchar",
        _column("varchar(65535)"),
        "54000",
    ),
    "collation": Case(
        _column('text COLLATE "C"'), "COLLATE clause not supported", 'SELECT v FROM t ORDER BY v COLLATE "C"'
    ),
    "column-compression": Case(
        _column("text COMPRESSION pglz"), "COMPRESSION clause not supported", _column("text STORAGE EXTERNAL")
    ),
    "deferrable-key": Case(
        _column("int UNIQUE INITIALLY DEFERRED"),
        "DEFERRABLE constraint not supported",
        _column("int UNIQUE REFERENCES p DEFERRABLE INITIALLY DEFERRED"),
    ),
    "exclusion-constraint": Case(
        "CREATE TABLE t (k int, EXCLUDE (k WITH =))",
        "EXCLUDE constraint not supported",
        "CREATE TABLE t (k int, UNIQUE (k))",
    ),
    "foreign-key-early": Case(
        _column("int REFERENCES p"), "FOREIGN KEY constraint not supported", _column("int CHECK (v > 1)")
    ),
    "identity-early": Case(
        _column("bigint GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
        "IDENTITY constraint not supported",
        _column("int GENERATED ALWAYS AS (k * 2) STORED"),
    ),
    "identity-type": Case(
        _column("int GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
        "datatype integer not supported, identity column type must be bigint",
        _column("bigint GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
    ),
    "identity-cache": Case(
        _column("bigint GENERATED BY DEFAULT AS IDENTITY"),
        f"identity column is not supported {CACHE}",
        _column("bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 65536)"),
    ),
    "key-type": Case(
        "CREATE TABLE t (k int, v jsonb, PRIMARY KEY (k, v))",
        "datatype jsonb is not supported in a key",
        "CREATE TABLE t (k int PRIMARY KEY, v jsonb)",
    ),
    "numeric-key-early": Case(
        _column("numeric(10, 2) UNIQUE"), "datatype numeric is not supported in a key", _column("bigint UNIQUE")
    ),
    "key-column-count": Case(
        "CREATE TABLE t (a int, PRIMARY KEY (a, b, c, d, e, f, g, h, i))",
        "more than 8 column keys in an index are not supported",
        "CREATE TABLE t (a int, PRIMARY KEY (a, b, c, d, e, f, g, h))",
        "54011",
    ),
    "add-column-constraint": Case(
        "ALTER TABLE t ADD COLUMN c int DEFAULT 0",
        "ALTER TABLE ADD COLUMN with constraint not supported",
        "ALTER TABLE t ADD c int NULL",
    ),
    "add-deferred-unique": Case(
        ADD + "UNIQUE USING INDEX i DEFERRABLE INITIALLY DEFERRED",
        "ALTER TABLE / ADD CONSTRAINT UNIQUE / DEFERRED / INITIALLY DEFERRED not supported",
        ADD + "UNIQUE USING INDEX i",
    ),
    "add-constraint": Case(
        ADD + "FOREIGN KEY (p) REFERENCES p (k)",
        "unsupported ALTER TABLE ADD CONSTRAINT statement",
        ADD + "FOREIGN KEY (p) REFERENCES p (k) NOT VALID",
    ),
    "add-constraint-before-foreign-keys": Case(
        ADD + "FOREIGN KEY (p) REFERENCES p (k) NOT VALID",
        "unsupported ALTER TABLE ADD CONSTRAINT statement",
        ADD + "CHECK (v > 1) NOT VALID",
    ),
    "add-constraint-before-checks": Case(
        ADD + "CHECK (v > 1) NOT VALID",
        "unsupported ALTER TABLE ADD CONSTRAINT statement",
        ADD + "UNIQUE USING INDEX i",
    ),
    "validate-constraint": Case(
        "ALTER TABLE t VALIDATE CONSTRAINT c",
        "unsupported ALTER TABLE VALIDATE CONSTRAINT statement",
        "ALTER TABLE ASYNC t VALIDATE CONSTRAINT c",
    ),
    "drop-column-early": Case(
        "ALTER TABLE t DROP COLUMN v",
        "unsupported ALTER TABLE DROP COLUMN statement",
        "ALTER TABLE t ALTER COLUMN v DROP DEFAULT",
    ),
    "alter-table-action": Case(
        "ALTER TABLE t ALTER COLUMN v TYPE bigint",
        "unsupported ALTER TABLE ALTER COLUMN ... SET DATA TYPE statement",
        "ALTER TABLE t ALTER COLUMN v DROP NOT NULL, ALTER COLUMN v SET STORAGE MAIN",
    ),
    "alter-table-action-by-pattern": Case(
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "unsupported ALTER TABLE REPLICA IDENTITY statement",
        "ALTER VIEW t SET (security_barrier = true)",
    ),
    "alter-foreign-relation": Case(
        "ALTER MATERIALIZED VIEW m OWNER TO r", "unsupported statement: AlterTable", "ALTER TABLE m OWNER TO r"
    ),
    "add-identity-cache": Case(
        "ALTER TABLE t ALTER COLUMN k ADD GENERATED ALWAYS AS IDENTITY",
        f"identity column is not supported {CACHE}",
        "ALTER TABLE t ALTER COLUMN k ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)",
    ),
}


def _day(rule: Rule) -> date:
    return rule.until - timedelta(days=1) if rule.until else TODAY


def _refusal(sql: str, day: date) -> Refusal | None:
    (part,) = judge(sql, day).parts
    return part.refusal


def test_every_rule_has_its_case() -> None:
    assert {rule.id for rule in rules()} == set(CASES)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_refused(rule: Rule) -> None:
    case = CASES[rule.id]
    refusal = _refusal(case.refused, _day(rule))
    assert refusal is not None
    assert (refusal.sqlstate, refusal.message, refusal.detail) == (case.sqlstate, case.message, rule.detail)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_accepted(rule: Rule) -> None:
    assert _refusal(CASES[rule.id].accepted, _day(rule)) is None


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.until], ids=lambda rule: rule.id)
def test_a_rule_ends(rule: Rule) -> None:
    assert rule.until is not None
    case = CASES[rule.id]
    refusal = _refusal(case.refused, rule.until)
    successors = [other for other in rules() if other.id != rule.id and other.message == rule.message]
    assert refusal is None or any(other.since == rule.until for other in successors)


# Statements of the rules that hold for many.
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
    assert _refusal(sql, TODAY) == Refusal("0A000", f"unsupported statement: {name}")


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
    assert _refusal(sql.format(written), TODAY) == Refusal("0A000", f"datatype {shown} not supported")


UNKNOWN_TYPES = ["thing[]", "mine.thing[]", "pg_catalog.serial", "mine.serial", "mine.money"]


@pytest.mark.parametrize("type_", UNKNOWN_TYPES)
def test_whether_a_type_exists_is_postgresqls_answer(type_: str) -> None:
    assert _refusal(_column(type_), TODAY) is None


SERIALS = {"serial": "serial", '"bigserial"': "bigserial", "serial4[]": "serial4[]"}


@pytest.mark.parametrize(("written", "shown"), SERIALS.items())
def test_serials_are_no_types(written: str, shown: str) -> None:
    assert _refusal(_column(written), TODAY) == Refusal("42704", f'type "{shown}" does not exist')


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
    assert _refusal(sql, TODAY) == Refusal("42703", f"column {shown} does not exist")


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
    assert _refusal(sql, TODAY) is None


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
    assert _refusal(sql, TODAY) == Refusal("0A000", f"datatype {type_} not supported")


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
    assert _refusal(sql, TODAY) == Refusal("0A000", f'setting configuration parameter "{name}" not supported')


@pytest.mark.parametrize(
    "sql", ["RESET ROLE", "SET role TO DEFAULT", "RESET work_mem", "SET SESSION AUTHORIZATION DEFAULT"]
)
def test_every_parameter_can_be_reset(sql: str) -> None:
    assert _refusal(sql, TODAY) is None


@pytest.mark.parametrize("sql", ["RESET dsql.turbo", "SET dsql.turbo TO DEFAULT", 'SET LOCAL "DSQL.turbo" = 1'])
def test_a_reserved_prefix_is_reserved_in_every_form(sql: str) -> None:
    refusal = _refusal(sql, TODAY)
    assert refusal == Refusal(
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
    assert _refusal(_column(type_), TODAY) is None


# In the order in which DSQL checks them.
INDEX_ORDER = [
    ("CREATE INDEX CONCURRENTLY i ON t USING btree (a DESC)", "CONCURRENTLY not supported for CREATE INDEX"),
    ("CREATE INDEX i ON t USING btree (a DESC)", "USING not supported for CREATE INDEX"),
    ("CREATE INDEX i ON t (a DESC)", "unsupported mode. please use CREATE INDEX ASYNC."),
    ("CREATE INDEX ASYNC i ON t (a DESC)", "specifying sort order not supported for index keys"),
]


@pytest.mark.parametrize(("sql", "message"), INDEX_ORDER)
def test_index_faults_are_reported_in_order(sql: str, message: str) -> None:
    assert _refusal(sql, TODAY) == Refusal("0A000", message)


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
    refused = _refusal(sql, TODAY)
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
    assert (_refusal(sql, TODAY) is not None) is refused


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
    assert _refusal(sql, TODAY) == Refusal("0A000", message)
