"""What the adjudicator sends to PostgreSQL in a client's session, besides the client's own statements."""

from __future__ import annotations

import re
from typing import Final

from pytest_dsql.local.adjudicator.sandbox.names import ENTER as _ENTER_SQL
from pytest_dsql.local.adjudicator.sandbox.names import PREFIX
from pytest_dsql.local.adjudicator.work import own_command
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.lending import IMPATIENT_MS

#: AWS user guide, "Concurrency control in Aurora DSQL"; the text as seen on clusters in September 2026.
CONFLICT: Final = Refusal("40001", "change conflicts with another transaction (OC000)")


SAVEPOINT: Final = "pytest_dsql_engine"
#: What follows a client's BEGIN: DSQL takes the snapshot there, PostgreSQL with the first query.
BEGINNING: Final = own_command("SELECT") + own_command(f"SAVEPOINT {SAVEPOINT}")
BEGINNING_QUERY: Final = f"\n;SELECT;SAVEPOINT {SAVEPOINT}".encode()

BEGIN: Final = own_command("BEGIN") + BEGINNING + SYNC_MESSAGE
PATIENCE: Final = own_command("SET LOCAL lock_timeout = '1500ms'")
BEGIN_PATIENTLY: Final = own_command("BEGIN") + PATIENCE + SYNC_MESSAGE
#: For locks that are nobody's for long: of a file that is being extended.
SOME_PATIENCE: Final = own_command("SET LOCAL lock_timeout = '200ms'")
BEGIN_WITH_SOME_PATIENCE: Final = own_command("BEGIN") + SOME_PATIENCE + SYNC_MESSAGE
IMPATIENCE: Final = own_command(f"SET LOCAL lock_timeout = '{IMPATIENT_MS}ms'") + SYNC_MESSAGE
COMMIT: Final = own_command("COMMIT") + SYNC_MESSAGE
ROLLBACK: Final = own_command("ROLLBACK") + SYNC_MESSAGE
BACK: Final = own_command(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
ENTER: Final = own_command(_ENTER_SQL)
LEAVE: Final = own_command(
    "SELECT pg_catalog.set_config_by_name('search_path', pg_catalog.current_setting('search_path'), true)"
)
_WAYS: Final = ("seqscan", "bitmapscan", "hashjoin", "mergejoin")
#: Around many rows that one statement writes: each is looked up by an index, however large the table is. Clients may
#: have set the same.
BY_INDEX_SQL: Final = "SELECT " + ", ".join(
    f"pg_catalog.set_config_by_name('{PREFIX}.enable_{way}', pg_catalog.show_config_by_name('enable_{way}'), true),"
    f" pg_catalog.set_config_by_name('enable_{way}', 'off', true)"
    for way in _WAYS
)
AS_BEFORE_SQL: Final = "SELECT " + ", ".join(
    f"pg_catalog.set_config_by_name('enable_{way}', pg_catalog.show_config_by_name('{PREFIX}.enable_{way}'), true)"
    for way in _WAYS
)
BY_INDEX: Final = own_command(BY_INDEX_SQL)
AS_BEFORE: Final = own_command(AS_BEFORE_SQL)
#: How many messages PostgreSQL answers to a command of ours that gives one row: as `run.own_execution` says.
OWN_MESSAGES: Final = 6
#: Rows that the transaction has written, cascades included: counted for DSQL's limit.
WRITTEN: Final = own_command("SELECT pytest_dsql_engine_limits.written() >> 36")
SCHEMAS: Final = own_command("SELECT pg_catalog.array_to_json(pg_catalog.current_schemas(false))") + SYNC_MESSAGE

#: A query that may set the path. Seen anywhere in a text it counts: too often does no harm.
SETS: Final = re.compile("set_config", re.IGNORECASE)
