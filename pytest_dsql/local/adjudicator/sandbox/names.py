"""The names of the helpers, and the statements that a session sends to use them."""

from __future__ import annotations

import hashlib
from typing import Final

#: Every schema and object of the engine's own begins so, and no client sees them.
PREFIX: Final = "pytest_dsql_engine"

#: Enters the sandbox: until the savepoint that was set before it is rolled back to, names mean the helpers, and no lock
#: is given up. Answers one row, whose one column is empty.
ENTER: Final = "SELECT pytest_dsql_engine.enter()"

#: In the sandbox: the keys that its rows would create, one text column, one row for each.
INSERTED_KEYS: Final = "SELECT pytest_dsql_engine.inserted_keys()"

#: The message of the notices with which PostgreSQL tells the gateway of keys; their DETAIL is the JSON text
#: `{"table": "<name>", "freed": ["<key>", ...]}`, or the same with `shared`.
KEYS_NOTICE: Final = "pytest_dsql_engine keys"


def hidden_schema(schema: str) -> str:
    """The schema in which a client's schema has its views. The helpers' SQL makes the same name."""
    return f"{PREFIX}_v_{hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()}"
