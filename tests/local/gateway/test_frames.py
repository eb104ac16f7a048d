"""Building and reading messages."""

from __future__ import annotations

from pytest_dsql.local.gateway import frames


def test_an_error_gives_bytes_that_are_no_utf8_back_as_they_came() -> None:
    name = b"\xff\xc3(".decode("utf-8", "surrogateescape")
    said = frames.error("FATAL", "08006", "denied", hint=f"user: {name}")
    assert frames.fields(said[frames.HEADER_SIZE :])["H"] == b"user: \xff\xc3("
