"""What a statement may leave in PostgreSQL's session."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_dsql.local import dialect
from pytest_dsql.local.gateway.leftovers import Leftover
from pytest_dsql.local.gateway.statements import Statements


@pytest.mark.parametrize(
    ("sql", "leaves"),
    [
        ("SELECT 1", Leftover.NOTHING),
        ("SELECT a FROM t WHERE b = $1", Leftover.NOTHING),
        ("SELECT count(*) FROM t", Leftover.PERHAPS),
        ("SELECT nextval('s')", Leftover.PERHAPS),
        ("INSERT INTO t VALUES (1)", Leftover.PERHAPS),
        ("BEGIN", Leftover.NOTHING),
        ("COMMIT", Leftover.NOTHING),
        ("", Leftover.NOTHING),
        (";", Leftover.NOTHING),
        ("SHOW timezone", Leftover.NOTHING),
        ("SET timezone = 'UTC'", Leftover.KEPT),
        ("SET LOCAL timezone = 'UTC'", Leftover.NOTHING),
        ("RESET ALL", Leftover.KEPT),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Leftover.KEPT),
        ("SELECT pg_catalog.set_config('timezone', 'UTC', false)", Leftover.KEPT),
        ("SELECT setval('s', 7)", Leftover.KEPT),
        ("PREPARE p AS SELECT 1", Leftover.KEPT),
        ("DEALLOCATE p", Leftover.KEPT),
        ("DISCARD ALL", Leftover.KEPT),
        ("DROP TABLE t", Leftover.NOTHING),
        ("SELECT 1; SET timezone = 'UTC'", Leftover.KEPT),
        ("LOCK TABLE t", Leftover.NOTHING),  # refused, so nothing comes of it
    ],
)
def test_what_is_left(sql: str, leaves: Leftover) -> None:
    decision = Statements(dialect.judge).decide(sql.encode(), date(2026, 11, 1))
    expected = Leftover.NOTHING if all(plan.refused for plan in decision.plans) else leaves
    assert decision.leaves == expected
