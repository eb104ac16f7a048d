import pytest

from pytest_dsql.local.dialect.judgement import Kind
from pytest_dsql.local.forms import Form, form_of


@pytest.mark.parametrize(
    ("sql", "kind", "form"),
    [
        ("SELECT * FROM t WHERE id = $1", "select", "point_read"),
        ("SELECT * FROM t WHERE 7 = id AND v > 3", "select", "point_read"),
        ("SELECT * FROM t WHERE id = 'a'::uuid FOR UPDATE", "select", "point_read"),
        ("SELECT p.x, i.y FROM p JOIN i ON i.p = p.id WHERE p.id = $1", "select", "point_read"),
        ("SELECT * FROM t", "select", "read"),
        ("SELECT * FROM t WHERE id > $1", "select", "read"),
        ("SELECT * FROM t WHERE id = $1 ORDER BY v", "select", "read"),
        ("SELECT v, sum(n) FROM t WHERE id = $1 GROUP BY v", "select", "read"),
        ("SELECT * FROM t WHERE id = $1 OR id = $2", "select", "read"),
        ("SELECT * FROM t WHERE id = (SELECT max(id) FROM t)", "select", "read"),
        ("SELECT * FROM a, b WHERE a.id = b.id", "select", "read"),
        ("SELECT 1", "select", "read"),
        ("INSERT INTO t SELECT * FROM u WHERE id = 1", "dml", "insert"),
        ("UPDATE t SET v = 1", "dml", "update"),
        ("DELETE FROM t", "dml", "delete"),
        ("WITH gone AS (DELETE FROM t RETURNING id) SELECT * FROM gone", "dml", "delete"),
        ("EXPLAIN ANALYZE UPDATE t SET v = 1", "dml", "update"),
        ("COPY t FROM STDIN", "dml", "insert"),
        ("COPY t TO STDOUT", "select", "read"),
        ("CREATE INDEX ASYNC ON t (v)", "ddl", "ddl"),
        ("START TRANSACTION", "begin", "begin"),
        ("END", "commit", "commit"),
        ("ABORT", "rollback", "rollback"),
        ("SET search_path = s", "set", "other"),
        ("this is no SQL", "select", "other"),
        ("SELECT '\ud800'", "select", "other"),
    ],
)
def test_a_statement_has_the_form(sql: str, kind: Kind, form: Form) -> None:
    assert form_of(sql, kind) == form
