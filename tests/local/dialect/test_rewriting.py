"""What PostgreSQL is sent instead of statements that DSQL understands in its own way."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_dsql.local.dialect import Part, judge


def _part(sql: str) -> Part:
    (part,) = judge(sql, date(2026, 11, 1)).parts
    assert part.refusal is None
    return part


REWRITTEN = {
    "CREATE INDEX ASYNC i ON s.t (v, (lower(w))) WHERE v > 'it''s'": (
        (
            "SELECT pytest_dsql_engine.submit_index("
            "'CREATE INDEX       i ON s.t (v, (lower(w))) WHERE v > ''it''''s''', "
            "NULL, '\"s\".\"t\"', ARRAY['v']::text[]) AS job_id"
        ),
        "CREATE INDEX",
    ),
    'create unique index async on "T" (v)': (
        (
            "SELECT pytest_dsql_engine.submit_index('create unique index       on \"T\" (v)', "
            "'create  index       on \"T\" (v)', '\"T\"', ARRAY['v']::text[]) AS job_id"
        ),
        "CREATE INDEX",
    ),
    "CREATE INDEX i ON t (v)": (
        "CALL pytest_dsql_engine.create_index('CREATE INDEX i ON t (v)', '\"t\"', ARRAY['v']::text[])",
        "CREATE INDEX",
    ),
    "ALTER TABLE ASYNC IF EXISTS ONLY s.t VALIDATE CONSTRAINT c": (
        ("SELECT pytest_dsql_engine.submit_validation('\"s\".\"t\"', 'c', true) AS job_id"),
        "ALTER TABLE",
    ),
    "ALTER TABLE ASYNC t * VALIDATE CONSTRAINT c": (
        ("SELECT pytest_dsql_engine.submit_validation('\"t\"', 'c', false) AS job_id"),
        "ALTER TABLE",
    ),
    "ALTER TABLE IF EXISTS t DISABLE TRIGGER ALL": (
        "CALL pytest_dsql_engine.alter_triggers(NULL, '\"t\"', true, ARRAY[]::text[])",
        "ALTER TABLE",
    ),
    "ALTER TABLE t DISABLE TRIGGER USER,ENABLE REPLICA TRIGGER g,ADD enable trigger,ADD n numeric,ENABLE TRIGGER ALL": (
        (
            "CALL pytest_dsql_engine.alter_triggers('ALTER TABLE t ADD enable trigger,ADD n numeric(18,6)', "
            "'\"t\"', false, ARRAY['g']::text[])"
        ),
        "ALTER TABLE",
    ),
    "ALTER TABLE t DROP COLUMN disable, DISABLE TRIGGER g": (
        (
            "CALL pytest_dsql_engine.alter_triggers("
            "'CALL pytest_dsql_engine.alter_table(''ALTER TABLE t DROP COLUMN disable '', ''\"t\"'', "
            "ARRAY[''disable'']::text[], ARRAY[]::text[])', '\"t\"', false, ARRAY['g']::text[])"
        ),
        "ALTER TABLE",
    ),
    'DROP TRIGGER IF EXISTS "G" ON s.t CASCADE': (
        "CALL pytest_dsql_engine.drop_trigger('G', '\"s\".\"t\"', true)",
        "DROP TRIGGER",
    ),
    'ALTER TABLE t DROP COLUMN "ID", DROP CONSTRAINT c, ADD n numeric': (
        (
            "CALL pytest_dsql_engine.alter_table("
            "'ALTER TABLE t DROP COLUMN \"ID\", DROP CONSTRAINT c, ADD n numeric(18,6)', '\"t\"', "
            "ARRAY['ID']::text[], ARRAY['c']::text[])"
        ),
        "ALTER TABLE",
    ),
    'CREATE TABLE t (a numeric, b numeric(9), c pg_catalog.numeric DEFAULT 1, "numeric" dec /* x */, ü decimal)': (
        (
            "CREATE TABLE t (a numeric(18,6), b numeric(9), c pg_catalog.numeric(18,6) DEFAULT 1, "
            '"numeric" dec(18,6) /* x */, ü decimal(18,6))'
        ),
        None,
    ),
    "CREATE DOMAIN d AS numeric CHECK (VALUE > 0)": ("CREATE DOMAIN d AS numeric(18,6) CHECK (VALUE > 0)", None),
    "SHOW server_version": ("SELECT pg_catalog.current_setting('server_version') AS server_version", "SHOW"),
    "SET LOCAL Disable_Sync_Create_Index TO off": ("SET LOCAL dsql.Disable_Sync_Create_Index TO off", None),
    "RESET ALL": ("CALL pytest_dsql_engine_limits.reset_all()", "RESET"),
    "RESET disable_sync_create_index": ("RESET dsql.disable_sync_create_index", None),
    "aws IAM -- who\n grant \"R 1\" to 'arn:aws:iam::1:role/x'": (
        "CALL pytest_dsql_engine.map_iam_role('R 1', 'arn:aws:iam::1:role/x')",
        "AWS IAM GRANT",
    ),
    "AWS IAM REVOKE Reader FROM 'a'": ("CALL pytest_dsql_engine.unmap_iam_role('reader', 'a')", "AWS IAM REVOKE"),
    # PostgreSQL's own syntax errors about what stands behind ASYNC.
    "CREATE INDEX ASYNC IF NOT EXISTS ON t (v)": ("CREATE INDEX       IF NOT EXISTS ON t (v)", None),
    "CREATE INDEX ASYNC public.i ON t (v)": ("CREATE INDEX       public.i ON t (v)", None),
    "AWS IAM GRANT r": ("AWS IAM GRANT r", None),
    "SHOW timezone": ("SHOW timezone", None),
}


@pytest.mark.parametrize(("sql", "sent"), REWRITTEN.items())
def test_what_is_sent(sql: str, sent: tuple[str, str | None]) -> None:
    part = _part(sql)
    assert (part.sql, part.tag) == sent
