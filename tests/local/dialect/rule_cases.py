"""A statement that each rule refuses, with which SQLSTATE and text, and a neighbour that it does not refuse."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from pytest_dsql.local.dialect import Refusal, judge

TODAY = date(2026, 11, 1)


class Case(NamedTuple):
    refused: str
    message: str
    accepted: str
    sqlstate: str = "0A000"


def column(type_: str) -> str:
    return f"CREATE TABLE t (k int, v {type_})"


def refusal(sql: str, day: date = TODAY) -> Refusal | None:
    """What is said about a statement that stands alone."""
    (part,) = judge(sql, day).parts
    return part.refusal


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
    "anonymous-block": Case("DO 'SELECT 1'", "unsupported statement: Do", "SELECT 'DO 1'"),
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
        column("numeric(39, 2)"),
        "NUMERIC precision 39 must be between 1 and 38",
        column("numeric(38, 37)"),
        "22023",
    ),
    "numeric-scale-early": Case(
        column("numeric(38, 38)"), "NUMERIC scale 38 must be between 0 and 37", column("numeric(38)"), "22023"
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
        column("bigserial NOT NULL"), 'type "bigserial" does not exist', 'CREATE TABLE t ("serial" int)', "42704"
    ),
    "array-type": Case(column("int[]"), "datatype integer[] not supported", "SELECT ARRAY[1]::int[]"),
    "column-type": Case(column("bit varying(8)"), "datatype bit varying not supported", column("mine.money")),
    "column-type-by-pattern": Case(column('"char"'), 'datatype "char" not supported', column("char")),
    "json-early": Case(column("json"), "datatype json not supported", column("text")),
    "jsonb-early": Case(column("jsonb"), "datatype jsonb not supported", column("text")),
    "char-length": Case(
        column("char(4097)"),
        "Datatype limit greater than 4096 bytes not supported for char",
        column("char(4096)"),
        "54000",
    ),
    "varchar-length": Case(
        column("varchar(65536)"),
        "Datatype limit greater than 65535 bytes not supported for varchar",
        column("varchar(65535)"),
        "54000",
    ),
    "collation": Case(
        column('text COLLATE "C"'), "COLLATE clause not supported", 'SELECT v FROM t ORDER BY v COLLATE "C"'
    ),
    "column-compression": Case(
        column("text COMPRESSION pglz"), "COMPRESSION clause not supported", column("text STORAGE EXTERNAL")
    ),
    "deferrable-key": Case(
        column("int UNIQUE INITIALLY DEFERRED"),
        "DEFERRABLE constraint not supported",
        column("int UNIQUE REFERENCES p DEFERRABLE INITIALLY DEFERRED"),
    ),
    "exclusion-constraint": Case(
        "CREATE TABLE t (k int, EXCLUDE (k WITH =))",
        "EXCLUDE constraint not supported",
        "CREATE TABLE t (k int, UNIQUE (k))",
    ),
    "foreign-key-early": Case(
        column("int REFERENCES p"), "FOREIGN KEY constraint not supported", column("int CHECK (v > 1)")
    ),
    "identity-early": Case(
        column("bigint GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
        "IDENTITY constraint not supported",
        column("int GENERATED ALWAYS AS (k * 2) STORED"),
    ),
    "identity-type": Case(
        column("int GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
        "datatype integer not supported, identity column type must be bigint",
        column("bigint GENERATED ALWAYS AS IDENTITY (CACHE 1)"),
    ),
    "identity-cache": Case(
        column("bigint GENERATED BY DEFAULT AS IDENTITY"),
        f"identity column is not supported {CACHE}",
        column("bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 65536)"),
    ),
    "key-type": Case(
        "CREATE TABLE t (k int, v jsonb, PRIMARY KEY (k, v))",
        "datatype jsonb is not supported in a key",
        "CREATE TABLE t (k int PRIMARY KEY, v jsonb)",
    ),
    "numeric-key-early": Case(
        column("numeric(10, 2) UNIQUE"), "datatype numeric is not supported in a key", column("bigint UNIQUE")
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
