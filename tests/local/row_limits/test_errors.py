"""PostgreSQL's own limits, told as DSQL's."""

from __future__ import annotations

import pytest

from pytest_dsql.local.row_limits.errors import as_limit


@pytest.mark.parametrize(
    ("sqlstate", "message", "expected"),
    [
        ("54000", 'index row size 2856 exceeds btree version 4 maximum 2704 for index "i"', "key size too large"),
        ("54000", "index row requires 8616 bytes, maximum size is 8191", "key size too large"),
        ("54000", "row is too big: size 8504, maximum size 8160", "maximum row size exceeded"),
        (
            "53400",
            "temporary file size exceeds temp_file_limit (2048kB)",
            "query requires more than allowed temp space of 2048 KB to execute",
        ),
        ("54000", "transaction row limit exceeded", None),
        ("23505", "row is too big: size 8504", None),
    ],
)
def test_only_those_are_told_otherwise(sqlstate: str, message: str, expected: str | None) -> None:
    found = as_limit({"C": sqlstate.encode(), "M": message.encode()})
    assert (found and (found.sqlstate, found.message)) == (expected and ("54000", expected))
