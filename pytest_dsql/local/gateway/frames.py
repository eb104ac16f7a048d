"""Messages of PostgreSQL's wire protocol 3.0: their names, how to build and how to read them.

Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol", section "Message Formats".
"""

from __future__ import annotations

from struct import Struct
from typing import Final

#: A message is a type byte and the length of the rest, the length field itself included.
HEADER: Final = Struct(">BI")
HEADER_SIZE: Final = HEADER.size
_LENGTH: Final = Struct(">I")

# Messages of the client.
QUERY: Final = ord("Q")
PARSE: Final = ord("P")
BIND: Final = ord("B")
EXECUTE: Final = ord("E")
SYNC: Final = ord("S")
FLUSH: Final = ord("H")
CLOSE: Final = ord("C")
DESCRIBE: Final = ord("D")
TERMINATE: Final = ord("X")
PASSWORD: Final = ord("p")
FUNCTION_CALL: Final = ord("F")

# Messages of the server.
AUTHENTICATION: Final = ord("R")
BACKEND_KEY_DATA: Final = ord("K")
READY_FOR_QUERY: Final = ord("Z")
COMMAND_COMPLETE: Final = ord("C")
EMPTY_QUERY: Final = ord("I")
PORTAL_SUSPENDED: Final = ord("s")
DATA_ROW: Final = ord("D")
ERROR_RESPONSE: Final = ord("E")
NOTICE_RESPONSE: Final = ord("N")
COPY_IN_RESPONSE: Final = ord("G")
BIND_COMPLETE: Final = ord("2")
CLOSE_COMPLETE: Final = ord("3")
PARSE_COMPLETE: Final = ord("1")
ROW_DESCRIPTION: Final = ord("T")
PARAMETER_DESCRIPTION: Final = ord("t")
NEGOTIATE_PROTOCOL_VERSION: Final = ord("v")

# Messages both sides send.
COPY_DATA: Final = ord("d")
COPY_DONE: Final = ord("c")
COPY_FAIL: Final = ord("f")

AUTHENTICATION_OK: Final = 0
AUTHENTICATION_CLEARTEXT_PASSWORD: Final = 3

TERMINATE_MESSAGE: Final = b"X\x00\x00\x00\x04"
SYNC_MESSAGE: Final = b"S\x00\x00\x00\x04"


def message(kind: int, payload: bytes) -> bytes:
    """Build one message."""
    return HEADER.pack(kind, len(payload) + 4) + payload


def query(text: bytes) -> bytes:
    """Build a Query message."""
    return message(QUERY, text + b"\0")


def ready(status: int) -> bytes:
    """Build a ReadyForQuery message."""
    return b"Z\x00\x00\x00\x05" + bytes((status,))


def authentication_request(code: int) -> bytes:
    """Build an Authentication message without data of its own."""
    return message(AUTHENTICATION, _LENGTH.pack(code))


def packet(payload: bytes) -> bytes:
    """Build a message without a type byte: the startup packet and its kin."""
    return _LENGTH.pack(len(payload) + 4) + payload


def texts(payload: bytes, count: int, start: int = 0) -> tuple[tuple[bytes, ...], int] | None:
    """Read `count` NUL-terminated texts from `start` on; give them and the place after, None if they aren't there."""
    found: list[bytes] = []
    for _ in range(count):
        end = payload.find(0, start)
        if end < 0:
            return None
        found.append(payload[start:end])
        start = end + 1
    return tuple(found), start


def fields(payload: bytes) -> dict[str, bytes]:
    """Read the fields of an ErrorResponse or NoticeResponse, by their one-letter names, in their order."""
    found: dict[str, bytes] = {}
    for field in payload.split(b"\0"):
        if field:
            found[chr(field[0])] = field[1:]
    return found


def values(payload: bytes) -> list[bytes | None]:
    """Read the values of a DataRow."""
    found: list[bytes | None] = []
    place = 2
    for _ in range(int.from_bytes(payload[:2], "big")):
        length = int.from_bytes(payload[place : place + 4], "big", signed=True)
        place += 4
        found.append(None if length < 0 else payload[place : place + length])
        place += max(length, 0)
    return found


def report(kind: int, found: dict[str, bytes]) -> bytes:
    """Build an ErrorResponse or NoticeResponse from its fields."""
    return message(kind, b"".join(name.encode() + value + b"\0" for name, value in found.items()) + b"\0")


def error(severity: str, sqlstate: str, text: str, *, detail: str | None = None, hint: str | None = None) -> bytes:
    """Build an ErrorResponse as PostgreSQL would: `severity` is ERROR or FATAL."""
    found = {"S": severity, "V": severity, "C": sqlstate, "M": text}
    if detail is not None:
        found["D"] = detail
    if hint is not None:
        found["H"] = hint
    # Bytes of a client that are no UTF-8 go back as they came.
    encoded = {name: value.replace("\0", "").encode("utf-8", "surrogateescape") for name, value in found.items()}
    return report(ERROR_RESPONSE, encoded)
