"""How a query string becomes parts: slices, kinds, and what neither comments nor literals may change."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.local.dialect import Judgement, Part, Refusal, judge
from pytest_dsql.local.dialect.libpg_query import parse
from pytest_dsql.local.dialect.tree import decode, raw_statements

TODAY = date(2026, 11, 1)


def _parts(sql: str) -> tuple[Part, ...]:
    return judge(sql, TODAY).parts


def _verdicts(judgement: Judgement) -> list[tuple[Refusal | None, str | None, str]]:
    return [(part.refusal, part.tag, part.kind) for part in judgement.parts]


KINDS = {
    "SELECT 1": "select",
    "TABLE t": "select",
    "VALUES (1)": "select",
    "WITH gone AS (DELETE FROM t RETURNING k) SELECT count(*) FROM gone": "dml",
    "INSERT INTO t VALUES (1)": "dml",
    "UPDATE t SET v = 1": "dml",
    "DELETE FROM t": "dml",
    "COPY t FROM STDIN": "dml",
    "COPY t TO STDOUT": "select",
    "COPY (DELETE FROM t RETURNING k) TO STDOUT": "dml",
    "EXPLAIN DELETE FROM t": "select",
    "EXPLAIN ANALYZE DELETE FROM t": "dml",
    "EXPLAIN (ANALYZE off) DELETE FROM t": "select",
    "EXPLAIN (ANALYZE true, VERBOSE) SELECT 1": "select",
    "BEGIN": "begin",
    "START TRANSACTION READ ONLY": "begin",
    "COMMIT": "commit",
    "END": "commit",
    "ROLLBACK": "rollback",
    "ABORT": "rollback",
    "SET search_path TO public": "set",
    "RESET ALL": "set",
    "SET CONSTRAINTS ALL DEFERRED": "set",
    "CREATE TABLE t (k int)": "ddl",
    "CREATE INDEX ASYNC i ON t (k)": "ddl",
    "ALTER TABLE t RENAME TO u": "ddl",
    "DROP TABLE t": "ddl",
    "GRANT SELECT ON t TO r": "ddl",
    "COMMENT ON TABLE t IS 'x'": "ddl",
    "CREATE ROLE r": "ddl",
    "AWS IAM GRANT r TO 'arn:aws:iam::123456789012:role/x'": "ddl",
    "SHOW timezone": "other",
    "ANALYZE t": "other",
    "CALL sys.wait_for_job('x')": "other",
    "": "other",
    " ; -- nothing\n": "other",
    "SELEKT 1": "other",
}


@pytest.mark.parametrize(("sql", "kind"), KINDS.items())
def test_kind(sql: str, kind: str) -> None:
    assert [part.kind for part in _parts(sql)] == [kind]


PASSED = [
    "",
    "  \n ",
    ";;",
    "-- only a comment",
    "/* one /* in another */ */",
    "SELEKT 1",
    "SELECT 'open",
    "SELECT 1\n;\n-- done\n",
    "INSERT INTO t VALUES (2, 'TRUNCATE TABLE x; CREATE TRIGGER y; SAVEPOINT z')",
    "SELECT 'please LISTEN', 'VACUUM', 'create temp table q', 'CREATE INDEX ASYNC i ON t (v)'",
    "SELECT 'a;b' AS \"c;d\" /* ; */ -- ; x\n, 2",
    "SELECT E'a\\'; TRUNCATE t; --', U&'\\0061;', $$TRUNCATE; 'x$$, $a$ $$ ; $a$",
    "SELECT $1::text || '$2$' || $2::text",
    "SELECT 'FOR SHARE' AS \"for no key update\" /* FOR SHARE */ FROM t WHERE k = 1 -- FOR SHARE",
    'CREATE TABLE t ("truncate" int, "vacuum" text, "for share" int, "serial" int)',
    "CREATE TABLE async (async int PRIMARY KEY, v int)",
    "SELECT async FROM async async WHERE async.async = 1",
    "ALTER TABLE async ADD COLUMN async2 int",
    "ALTER TABLE async RENAME TO validate",
    "CREATE TABLE temporary_cache (serial_number text, partition_key int, unlogged int, collate_name text)",
    "INSERT INTO t VALUES (7, 'Grüße, 東京; 🚀') RETURNING v",
    'SELECT "lockingClause", \'"lockingClause":[{"MergeStmt":\' FROM "intoClause"',
    "SELECT 'set_config', set_config FROM pg_advisory_lock",
    "\ufeff SELECT 1",
    "SELECT 1\0; TRUNCATE t",
    "SELECT '\ud800'",
]


@pytest.mark.parametrize("sql", PASSED)
def test_passed_as_it_is(sql: str) -> None:
    judgement = judge(sql, TODAY)
    assert judgement.unchanged
    assert "".join(part.sql for part in judgement.parts) == sql
    assert not any(part.refusal or part.tag for part in judgement.parts)


REFUSED = [
    "/* a /* nested */ comment */ -- and a line\n TRUNCATE t",
    "--x\n/**/SAVEPOINT s",
    "  ;\n; VACUUM",
    "sElEcT k FrOm t FoR /* */ sHaRe",
    'SELECT pg_catalog . "pg_advisory_lock" (1)',
    'SELECT U&"pg_advis\\006fry_lock"(1)',
]


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_however_it_is_written(sql: str) -> None:
    assert _parts(sql)[-1].refusal is not None


def test_parts_of_a_query_string() -> None:
    sql = "/* ü */ SELECT 'ä;' ;\n -- ö\n DELETE FROM t; ; TRUNCATE t ; -- end"
    judgement = judge(sql, TODAY)
    assert [part.sql for part in judgement.parts] == [
        "/* ü */ SELECT 'ä;' ;",
        "\n -- ö\n DELETE FROM t;",
        " ; TRUNCATE t ; -- end",
    ]
    assert [part.kind for part in judgement.parts] == ["select", "dml", "ddl"]
    assert judgement.parts[2].refusal == Refusal("0A000", "unsupported statement: Truncate")
    assert not judgement.unchanged


def test_a_changed_part_leaves_the_others_as_they_are() -> None:
    before, changed, after = _parts("SELECT 'é' ; CREATE INDEX ASYNC i ON t (v) ; SELECT 2 -- é")
    assert (before.sql, after.sql) == ("SELECT 'é' ;", " SELECT 2 -- é")
    assert changed.sql.endswith(" AS job_id;")
    assert changed.tag == "CREATE INDEX"


def test_a_fault_anywhere_makes_the_whole_text_a_syntax_error() -> None:
    sql = "CREATE TABLE t (k money); SELEKT"
    assert _parts(sql) == (Part(sql),)


@pytest.mark.parametrize("terms", [50, 400, 5_000, 80_000])
def test_deep_expressions_pass(terms: int) -> None:
    sql = "INSERT INTO t SELECT " + " || ".join(["v"] * terms) + " FROM u"
    assert _parts(sql) == (Part(sql, kind="dml"),)


def test_deep_expressions_with_a_mark_pass() -> None:
    sql = "SELECT " + " || ".join(["v"] * 3_000) + " FROM u FOR UPDATE"
    assert _parts(sql) == (Part(sql, kind="select"),)


@pytest.mark.parametrize(
    "hidden", ["SELECT {deep}; TRUNCATE t", "TRUNCATE t; SELECT {deep}", "SELECT pg_advisory_lock({deep})"]
)
def test_deep_expressions_hide_nothing(hidden: str) -> None:
    sql = hidden.format(deep=" + ".join(["1"] * 3_000))
    assert any(part.refusal for part in _parts(sql))


def test_deep_trees_are_decoded_as_shallow_ones() -> None:
    written = parse("""SELECT 'a "{[,:]}\\ ü' AS "x:y", 1.5, NULL, -7 FROM t WHERE b AND NOT c""".encode())
    deep = b'{"a":' * 5_000 + written + b"}" * 5_000
    value = decode(deep)
    for _ in range(5_000):
        value = value["a"]
    assert value == json.loads(written)


def test_functions_in_functions_are_not_followed_without_end() -> None:
    body = "SELECT 1"
    for level in range(2_000):
        body = f"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $q{level}$ {body} $q{level}$"
    (part,) = _parts(body)
    assert part.refusal == Refusal("0A000", "unsupported statement in CREATE FUNCTION: CreateFunction")


TREES = [
    "",
    "SELECT 1",
    'SELECT 1; SELECT \'{"stmt":{\' AS "{""stmt"":{"; DELETE FROM t WHERE v = \']}\'',
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3",
    "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2); EXPLAIN ANALYZE SELECT 1; COPY (SELECT 1) TO STDOUT",
    "CREATE SCHEMA s CREATE TABLE t (k int) CREATE VIEW v AS SELECT 1; PREPARE p AS SELECT 1",
    ";".join(["INSERT INTO t VALUES (1) RETURNING k"] * 100),
]


@pytest.mark.parametrize("sql", TREES)
def test_statements_are_decoded_one_by_one_as_they_are_together(sql: str) -> None:
    tree = parse(sql.encode())
    assert list(raw_statements(tree)) == decode(tree).get("stmts", [])


def test_long_names_are_cut_between_characters() -> None:
    assert _parts(f'CREATE TABLE "{"ü" * 40}" (k money)')[0].refusal is not None


STATEMENTS = [
    "SELECT 1",
    "TRUNCATE t",
    "CREATE INDEX ASYNC i ON t (v)",
    "CREATE UNIQUE INDEX i ON t (v)",
    "CREATE TABLE t (k numeric)",
    "SELECT k FROM t FOR SHARE",
    "SET work_mem = 1",
    "SHOW server_version",
    "AWS IAM GRANT r TO 'arn:aws:iam::123456789012:role/x'",
    "ALTER TABLE ASYNC t VALIDATE CONSTRAINT c",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
]

_SPACE = st.text(" \t\n", max_size=3)
_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0*/\n\r"), max_size=12)
_COMMENT = st.one_of(
    _WORDS.map(lambda words: f"--{words}\n"),
    _WORDS.map(lambda words: f"/*{words}*/"),
    st.sampled_from(STATEMENTS).map(lambda words: f"/* {words}; /* {words} */ */"),
    st.sampled_from(STATEMENTS).map(lambda words: f"-- {words};\n"),
)
_FILLING = st.lists(st.one_of(_SPACE, _COMMENT), min_size=1, max_size=3).map(lambda filling: f" {''.join(filling)} ")


@settings(deadline=None)
@given(statement=st.sampled_from(STATEMENTS), data=st.data())
def test_comments_never_change_the_judgement(statement: str, data: st.DataObject) -> None:
    words = statement.split(" ")
    commented = "".join(word + data.draw(_FILLING) for word in ["", *words])
    assert _verdicts(judge(commented, TODAY)) == _verdicts(judge(statement, TODAY))


_QUOTES = st.sampled_from(
    [("'", "'"), ('"', '"'), ("$$", "$$"), ("$ä$", "$ä$"), ("E'", "'"), ("/*", "*/ 1"), ("1 --", "")]
)


@settings(deadline=None)
@given(statement=st.sampled_from(STATEMENTS), quotes=_QUOTES)
def test_quotes_make_any_statement_harmless(statement: str, quotes: tuple[str, str]) -> None:
    inside = statement.replace("'", "")
    sql = f"SELECT {quotes[0]}{inside}{quotes[1]}"
    assert judge(sql, TODAY) == Judgement((Part(sql, kind="select"),), unchanged=True)


_TOKENS = st.sampled_from(
    [
        "CREATE",
        "UNIQUE",
        "INDEX",
        "ASYNC",
        "ALTER",
        "TABLE",
        "AWS",
        "IAM",
        "GRANT",
        "TO",
        "VALIDATE",
        "CONSTRAINT",
        "SELECT",
        "FROM",
        "FOR",
        "SHARE",
        "SET",
        "numeric",
        ";",
        "(",
        ")",
        ",",
        "t",
        '"t"',
        "'x'",
        "$$",
        "'",
        '"',
        "--",
        "/*",
        "*/",
        "1",
        "SHOW",
        "server_version",
        "DROP",
        "COLUMN",
        "ADD",
        "PRIMARY",
        "KEY",
        "ON",
        ".",
        "=",
        "INTO",
        "EXPLAIN",
        "ü",
        "🚀",
    ]
)
_TEXTS = st.one_of(
    st.text(),
    st.text(st.characters()),
    st.lists(_TOKENS, max_size=14).map(" ".join),
    st.lists(st.sampled_from(STATEMENTS), max_size=4).map("; ".join),
)


@settings(deadline=None, max_examples=400)
@given(_TEXTS)
def test_never_raises_and_never_loses_a_byte(sql: str) -> None:
    judgement = judge(sql, TODAY)
    assert judgement.parts
    whole = "".join(part.sql for part in judgement.parts)
    if judgement.unchanged or all(part.refusal for part in judgement.parts):
        assert whole == sql
