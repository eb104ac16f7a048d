"""How a refusal travels through PostgreSQL, and how PostgreSQL's own errors become DSQL's.

The gateway never answers a statement itself: a refused statement is sent as one that fails at parse analysis, and the
refusal is inside the text that PostgreSQL quotes in its error. So PostgreSQL decides when the error comes, what it
aborts, what is skipped up to the next Sync, and that 25P02 goes before it; and nothing has to be remembered here.
"""

from __future__ import annotations

import base64
import json
import secrets
from typing import Final

from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.row_limits.errors import as_limit

#: Prefix of everything the engine creates in PostgreSQL for itself. Clients never see a name that begins with it.
INTERNAL_PREFIX: Final = "pytest_dsql_engine"

#: Tells our failing statements from a client's own: random, so that no client can make one.
_MARK: Final = f"dsql-{secrets.token_hex(16)}:"
_MARK_BYTES: Final = _MARK.encode()
_INTERNAL: Final = INTERNAL_PREFIX.encode()
#: DSQL has no procedural language: a context that names such a function is one of the engine's own.
_PROCEDURAL: Final = b"PL/pgSQL function "

#: AWS user guide, "Concurrency control in Aurora DSQL"; the text as seen on clusters in September 2026.
_CONFLICT: Final = frames.error("ERROR", "40001", "change conflicts with another transaction (OC000)")

#: PostgreSQL's ways to say that two transactions got in each other's way: serialization failure, deadlock, and what
#: only the engine asks for: a lock that wasn't given in time, a statement that was stopped.
_CONFLICT_STATES: Final = (b"40001", b"40P01", b"55P03")
_STOPPED: Final = b"canceling statement due to "


def failing_statement(refusal: Refusal, analysed: str | None = None) -> str:
    """A statement that fails in PostgreSQL with `refusal` inside its error.

    PostgreSQL analyses `analysed`, a query, before that, and its errors about it come first.
    """
    said = json.dumps([refusal.sqlstate, refusal.message, refusal.detail, refusal.hint])
    failing = f"SELECT '{_MARK}{base64.b64encode(said.encode()).decode()}'::pg_catalog.int4"
    # The line ends what may be a comment at the query's end.
    return failing if analysed is None else f"{failing} FROM ({analysed}\n) AS analysed"


def error(refusal: Refusal) -> bytes:
    """The ErrorResponse that tells a refusal."""
    return frames.error("ERROR", refusal.sqlstate, refusal.message, detail=refusal.detail, hint=refusal.hint)


def replace_error(payload: bytes) -> bytes | None:
    """Give the whole message to send for PostgreSQL's ErrorResponse with this payload; None to send it as it is."""
    mark = payload.find(_MARK_BYTES)
    if mark >= 0:
        start = mark + len(_MARK_BYTES)
        said = json.loads(base64.b64decode(payload[start : payload.index(b'"', start)]))
        sqlstate, message, detail, hint = said
        return frames.error("ERROR", sqlstate, message, detail=detail, hint=hint)
    found = frames.fields(payload)
    if found.get("C") in _CONFLICT_STATES or found.get("M", b"").startswith(_STOPPED):
        return _CONFLICT
    limit = as_limit(found)
    if limit is not None:
        return frames.error("ERROR", limit.sqlstate, limit.message)
    return _without_internals(frames.ERROR_RESPONSE, payload, found)


def told(message: bytes, offset: int = 0) -> bytes:
    """What the client is told of a message; `offset` is the statement's place in its query string, in characters."""
    if message[0] != frames.ERROR_RESPONSE:
        return message
    payload = message[frames.HEADER_SIZE :]
    replaced = replace_error(payload)
    if replaced is not None or not offset:
        return message if replaced is None else replaced
    found = frames.fields(payload)
    if "P" in found:
        found["P"] = str(int(found["P"]) + offset).encode()
    return frames.report(frames.ERROR_RESPONSE, found)


def replace_notice(payload: bytes) -> bytes | None:
    """Give the whole message to send for PostgreSQL's NoticeResponse; None to send it as it is, empty to send none."""
    found = frames.fields(payload)
    if found.get("M", b"").startswith(_INTERNAL):
        return b""
    return _without_internals(frames.NOTICE_RESPONSE, payload, found)


def _without_internals(kind: int, payload: bytes, found: dict[str, bytes]) -> bytes | None:
    if _INTERNAL not in payload and _PROCEDURAL not in found.get("W", b""):
        return None
    # Where it happened (context, internal query and its position), and the schema's name, are ours; what is the user's.
    hidden = {"W", "q", "p"} | {name for name in "sP" if _INTERNAL in found.get(name, b"")}
    return frames.report(kind, {name: value for name, value in found.items() if name not in hidden})
