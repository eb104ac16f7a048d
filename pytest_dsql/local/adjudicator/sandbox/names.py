"""The names of the helpers, and the statements that a session sends to use them."""

from __future__ import annotations

import hashlib
from typing import Final

#: Every schema and object of the engine's own begins so, and no client sees them.
PREFIX: Final = "pytest_dsql_engine"

#: Enters the sandbox: until the savepoint that was set before it is rolled back to, names mean the helpers, and no lock
#: is given up. Answers one row, whose one column is empty.
ENTER: Final = "SELECT pytest_dsql_engine_sandbox.enter()"

#: In the sandbox: the keys of the rows that it has written, one text column, one row for each.
#: `{oids}` are those of the tables in which it may have made unique keys, with commas between them.
WRITTEN_KEYS: Final = "SELECT pytest_dsql_engine_sandbox.written_keys('{{{oids}}}')"

#: The message of the notices with which PostgreSQL tells the gateway of keys; their DETAIL is the JSON text
#: `{"table": "<name>", "freed": ["<key>", ...]}`, or the same with `shared`,
#: `locked`, or `left` without any: rows refer to others than before.
KEYS_NOTICE: Final = "pytest_dsql_engine keys"


def hidden_schema(schema: str) -> str:
    """The schema in which a client's schema has its views. The helpers' SQL makes the same name."""
    return f"{PREFIX}_v_{_digest(schema)}"


def stage_schema(schema: str) -> str:
    """The schema of the views into which rows are proposed that an INSERT with ON CONFLICT might insert."""
    return f"{PREFIX}_s_{_digest(schema)}"


def written_schema(schema: str) -> str:
    """The schema of the views of the rows that sandboxes have written."""
    return f"{PREFIX}_w_{_digest(schema)}"


def _digest(schema: str) -> str:
    return hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()
