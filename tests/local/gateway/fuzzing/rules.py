"""A judge for streams that PostgreSQL has to answer too: the dialect's, but one tagged statement changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from pytest_dsql.local import dialect
from pytest_dsql.local.dialect.judgement import Judgement, Part

#: What is sent for CREATE INDEX ASYNC, which is answered as if it had been one.
TAGGED = "SELECT 'abc' AS job_id"


def judge(sql: str, rules: date) -> Judgement:
    """Judge as the dialect does, except for CREATE INDEX ASYNC."""
    judgement = dialect.judge(sql, rules)
    parts = tuple(map(_replaced, judgement.parts))
    return replace(judgement, parts=parts, unchanged=judgement.unchanged and parts == judgement.parts)


def _replaced(part: Part) -> Part:
    if part.tag != "CREATE INDEX":
        return part
    end = ";" if part.sql.rstrip().endswith(";") else ""
    return Part(TAGGED + end, tag="CREATE INDEX", kind="select")
