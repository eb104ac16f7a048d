"""Takes the engine's own triggers out of PostgreSQL's answer to EXPLAIN ANALYZE of a statement that writes."""

from __future__ import annotations

import json
import re
from struct import Struct
from typing import Final

from pytest_dsql.local.gateway import frames

#: A row of one value: the number of values, and the length of the first.
_ONE_VALUE: Final = Struct(">HI")

_OURS: Final = r"(?:dsql_limits_|pytest_dsql_engine)"
_LINE: Final = re.compile(f"Trigger {_OURS}".encode())
_YAML: Final = re.compile(
    rf'\n *- Trigger Name: "{_OURS}[^\n]*(?:\n +(?:Relation|Schema|Time|Calls): [^\n]*)*'.encode()
)
_XML: Final = re.compile(rf"\n *<Trigger>\s*<Trigger-Name>{_OURS}(?:(?!</Trigger>).)*</Trigger>".encode(), re.DOTALL)
_NAME: Final = re.compile(_OURS)


def without_triggers(messages: list[bytes]) -> list[bytes]:
    """Give the messages of an EXPLAIN's answer without what they say of the engine's triggers."""
    kept = []
    for message in messages:
        if message[0] != frames.DATA_ROW:
            kept.append(message)
            continue
        value = message[frames.HEADER_SIZE + _ONE_VALUE.size :]
        if _LINE.match(value):
            continue
        shown = _shown(value)
        kept.append(message if shown == value else _row(shown))
    return kept


def _shown(value: bytes) -> bytes:
    """A line of a plan, or a whole plan in another form."""
    if value.startswith(b"[") and b'"Trigger Name"' in value:
        plans = json.loads(value)
        for plan in plans:
            plan["Triggers"] = [one for one in plan["Triggers"] if not _NAME.match(one["Trigger Name"])]
        return json.dumps(plans, indent=2).encode()
    return _XML.sub(b"", _YAML.sub(b"", value))


def _row(value: bytes) -> bytes:
    return frames.message(frames.DATA_ROW, _ONE_VALUE.pack(1, len(value)) + value)
