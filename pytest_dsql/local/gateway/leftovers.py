"""What a statement may leave in PostgreSQL's session for the statements that follow it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, final

from pytest_dsql.local.dialect.judgement import Kind


@final
class Leftover(IntEnum):
    """What becomes of a session's connection when the statement is done."""

    NOTHING = 0  #: any session can have it next
    PERHAPS = 1  #: sequence values: currval() and lastval() are asked of the session that drew them
    KEPT = 2  #: settings, SQL's own prepared statements, cursors: the session keeps the connection


#: Functions that change the session (PostgreSQL documentation, "System Administration Functions", "Sequence
#: Manipulation Functions", "Mathematical Functions"). Seen anywhere in a text they count: too often does no harm.
_CHANGES: Final = re.compile(r"set_config|setval|setseed|pg_advisory|pg_try_advisory|dblink", re.IGNORECASE)
#: A setting of the transaction only.
_LOCAL: Final = re.compile(r"\s*SET\s+(LOCAL|TRANSACTION)\b", re.IGNORECASE)
#: Of those that are neither queries nor DDL.
_HARMLESS: Final = re.compile(r"\s*(SELECT|SHOW|ANALYZE|EXPLAIN|CALL|VACUUM)\b|[\s;]*$", re.IGNORECASE)


def leftover(kind: Kind, sql: str) -> Leftover:
    """Tell by a statement's kind and text what it may leave."""
    if kind in ("begin", "commit", "rollback"):
        return Leftover.NOTHING
    if kind == "set":
        return Leftover.NOTHING if _LOCAL.match(sql) else Leftover.KEPT
    if (kind == "other" and not _HARMLESS.match(sql)) or _CHANGES.search(sql):
        return Leftover.KEPT
    # Nothing draws from a sequence but a function that is called, or a column's default.
    return Leftover.PERHAPS if kind == "dml" or "(" in sql else Leftover.NOTHING
