"""Errors and notices from the sandbox, as the client would have got them from its tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog
from pytest_dsql.local.adjudicator.sandbox.names import PREFIX, hidden_schema

_MESSAGE: Final = "M"
_CONTEXT: Final = "W"

_NO_PRIVILEGE: Final = re.compile(r"permission denied for view (.+)")
_HIDDEN: Final = re.compile(rf'"?{PREFIX}_[vosw]_[0-9a-f]{{32}}"?')


def seen_by_client(fields: Mapping[str, bytes], catalog: Catalog) -> dict[str, bytes]:
    """The fields of an ErrorResponse or NoticeResponse, by their one-letter names, without the sandbox in them."""
    seen = {name: value.decode("utf-8", "surrogateescape") for name, value in fields.items()}
    if PREFIX in seen.get(_CONTEXT, ""):
        del seen[_CONTEXT]
    for name, text in seen.items():
        if PREFIX in text:
            seen[name] = _HIDDEN.sub(lambda found: _schema(found[0], catalog), text)
    denied = _NO_PRIVILEGE.fullmatch(seen.get(_MESSAGE, ""))
    if denied and any(not table.view for table in catalog.tables.values() if table.name == denied[1]):
        seen[_MESSAGE] = f"permission denied for table {denied[1]}"
    return {name: text.encode("utf-8", "surrogateescape") for name, text in seen.items()}


def _schema(hidden: str, catalog: Catalog) -> str:
    digest = hidden.strip('"')[-32:]
    named = (table.schema for table in catalog.tables.values() if hidden_schema(table.schema).endswith(digest))
    return next(named, hidden)
