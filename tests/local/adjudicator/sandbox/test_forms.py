from __future__ import annotations

import pytest

from pytest_dsql.local.adjudicator.sandbox.forms import form
from pytest_dsql.local.adjudicator.sandbox.texts import Source


def names(*texts: str) -> frozenset[tuple[str | None, str]]:
    pairs = (text.rpartition(".") for text in texts)
    return frozenset((schema or None, name) for schema, _, name in pairs)


@pytest.mark.parametrize(
    ("sql", "reads", "writes", "inserts"),
    [
        ("SELECT 1", (), (), ()),
        ("SELECT * FROM t JOIN s.u USING (id), LATERAL (SELECT * FROM v) q", ("t", "s.u", "v"), (), ()),
        ('SELECT \'FROM x\', "from" FROM "T" -- FROM y', ("T",), (), ()),
        (
            "SELECT * FROM t WHERE EXISTS (SELECT FROM u WHERE u.id = t.id) UNION SELECT * FROM v",
            ("t", "u", "v"),
            (),
            (),
        ),
        ("WITH t AS (SELECT * FROM u) SELECT * FROM t, public.t AS p", ("u", "public.t"), (), ()),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ("t",), (), ()),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT * FROM t) SELECT * FROM t", (), (), ()),
        ("SELECT (WITH t AS (SELECT 1) SELECT * FROM t), x FROM t", ("t",), (), ()),
        ("INSERT INTO t SELECT * FROM u", ("u",), ("t",), ("t",)),
        ("WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t", (), ("t",), ("t",)),
        ("UPDATE t SET a = 1 FROM u WHERE t.id = u.id", ("u",), ("t",), ("t",)),
        ("DELETE FROM s.t USING u", ("u",), ("s.t",), ()),
        ("WITH d AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM d", (), ("t", "u"), ("u",)),
        ("COPY t (a) FROM STDIN", (), ("t",), ("t",)),
        ("COPY t TO STDOUT", ("t",), (), ()),
        ("COPY (SELECT * FROM t) TO STDOUT", ("t",), (), ()),
        ("EXPLAIN DELETE FROM t", ("t",), (), ()),
        ("EXPLAIN (ANALYZE) DELETE FROM t", (), ("t",), ()),
        ("SELECT * FROM t TABLESAMPLE system (1) JOIN u ON true", ("t", "u"), (), ()),
        ("(SELECT * FROM t) EXCEPT (SELECT * FROM u JOIN v ON true)", ("t", "u", "v"), (), ()),
        ("no sql at all", (), (), ()),
        ("\udcff", (), (), ()),
    ],
)
def test_what_a_statement_reads_and_writes(
    sql: str, reads: tuple[str, ...], writes: tuple[str, ...], inserts: tuple[str, ...]
) -> None:
    found = form(sql)
    assert (found.reads, found.writes, found.inserts) == (names(*reads), names(*writes), names(*inserts))


@pytest.mark.parametrize(
    ("sql", "locks"),
    [
        ("SELECT * FROM t FOR UPDATE", {"update"}),
        ("SELECT * FROM t FOR KEY SHARE OF t SKIP LOCKED", {"share"}),
        ("SELECT * FROM a, b FOR UPDATE OF a FOR KEY SHARE OF b", {"update", "share"}),
        ("WITH x AS (SELECT * FROM t FOR UPDATE) DELETE FROM t USING x", {"update"}),
        ("EXPLAIN SELECT * FROM t FOR UPDATE", set()),
        ("SELECT 'FOR UPDATE'", set()),
    ],
)
def test_which_locks_a_statement_takes(sql: str, locks: set[str]) -> None:
    assert form(sql).locks == locks


def test_functions_limits_and_defaults_are_seen() -> None:
    found = form("INSERT INTO t SELECT public.f(random()) FROM u LIMIT 1")
    assert found.functions == {"f", "random"}
    assert found.picks
    assert not found.defaults
    assert form("UPDATE t SET a = DEFAULT").defaults
    assert form("SELECT DISTINCT ON (a) a FROM t").picks
    assert not form("SELECT DISTINCT a FROM t").picks


@pytest.mark.parametrize("sql", ["SELECT pytest_dsql_engine_x.f()", "SELECT * FROM pytest_dsql_engine_v_1.t"])
def test_names_of_the_engines_own_are_seen(sql: str) -> None:
    assert form(sql).hidden


def test_a_deeply_nested_statement_is_read() -> None:
    assert form("SELECT " + "+".join(["a"] * 3_000) + " FROM t").reads == names("t")


@pytest.mark.parametrize(
    ("sql", "clauses"),
    [
        ("SELECT 1 FOR UPDATE", ["FOR UPDATE"]),
        ("SELECT * FROM t FOR UPDATE OF t, u NOWAIT LIMIT 1", ["FOR UPDATE OF t, u NOWAIT"]),
        ("SELECT * FROM (SELECT * FROM t FOR KEY SHARE SKIP LOCKED) q", ["FOR KEY SHARE SKIP LOCKED"]),
        ("SELECT substring(a FOR 2), 'FOR UPDATE' FROM t /* FOR UPDATE */", []),
    ],
)
def test_locking_clauses_are_found_in_the_text(sql: str, clauses: list[str]) -> None:
    source = Source(sql)
    found = [
        sql[source.tokens[first].start : source.tokens[behind - 1].end] for first, _, behind in source.locking_clauses()
    ]
    assert found == clauses


def test_edits_leave_the_rest_where_it_was() -> None:
    source = Source("SELECT 'é', a FROM s.t FOR UPDATE")
    edit = source.blank(*next((first, behind) for first, _, behind in source.locking_clauses()))
    assert edit is not None
    assert source.piece(0, source.end, [edit]) == "SELECT 'é', a FROM s.t           "
