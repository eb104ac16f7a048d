"""PostgreSQL's own limits that lie near DSQL's: whoever meets them is told of DSQL's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pytest_dsql.local.dialect.judgement import Refusal

_PROGRAM_LIMIT: Final = b"54000"
_CONFIGURATION_LIMIT: Final = b"53400"

#: A key that no page of an index can hold: `index row size 2856 exceeds btree version 4 maximum 2704 for index "i"`,
#: `index row requires 8616 bytes, maximum size is 8191`.
_KEY: Final = (b"index row size ", b"index row requires ")
#: A row that no page can hold, its long values apart.
_ROW: Final = b"row is too big: "
_TEMPORARY: Final = re.compile(rb"temporary file size exceeds temp_file_limit \((\d+)kB\)")


def as_limit(fields: Mapping[str, bytes]) -> Refusal | None:
    """DSQL's error for an error of PostgreSQL with these fields; None where it has no other."""
    state, message = fields.get("C"), fields.get("M", b"")
    if state == _PROGRAM_LIMIT:
        if message.startswith(_KEY):
            return Refusal("54000", "key size too large")
        if message.startswith(_ROW):
            return Refusal("54000", "maximum row size exceeded")
    elif state == _CONFIGURATION_LIMIT:
        found = _TEMPORARY.match(message)
        if found:
            # As seen on clusters in October 2026; the user guide has 53200 and another text.
            kilobytes = found[1].decode()
            return Refusal("54000", f"query requires more than allowed temp space of {kilobytes} KB to execute")
    return None
