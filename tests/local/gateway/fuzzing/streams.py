"""Streams of a client's messages: correct ones, wild but well-formed, and broken ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

from pytest_dsql.local.gateway import frames
from tests.local.gateway.fuzzing.mutations import bent

SYNC: Final = frames.message(frames.SYNC, b"")
FLUSH: Final = frames.message(frames.FLUSH, b"")
COPY_DONE: Final = frames.message(frames.COPY_DONE, b"")
COPY_FAIL: Final = frames.message(frames.COPY_FAIL, b"enough\0")

#: Statements on the client's own table, written `$t`, that any PostgreSQL answers alike. `$m` is the client's mark.
PLAIN: Final = (
    "SELECT 1",
    "SELECT '$m' AS mark",
    "SELECT g, '$m' FROM generate_series(1, 5) g",
    "SELECT k, v FROM $t ORDER BY k",
    "SELECT 1 / 0",
    "SELEC 1",
    "SELECT nobody FROM $t",
    "",
    ";",
    "/* nothing */",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "INSERT INTO $t VALUES (7, '$m')",
    "DELETE FROM $t WHERE k = 7",
    "UPDATE $t SET v = '$m'",
    "UPDATE $t SET v = '$m' RETURNING k, v",
    "SHOW transaction_isolation",
)
#: Statements that the harness's judge refuses or gives another command tag.
JUDGED: Final = ("LOCK TABLE $t", "CREATE INDEX ASYNC ON $t (k)")
COPIES: Final = ("COPY $t FROM STDIN", "COPY $t TO STDOUT", "COPY (SELECT '$m') TO STDOUT")
STRINGS: Final = (
    "SELECT 1; SELECT '$m'",
    "SELECT 1; SELECT 1 / 0; SELECT 2",
    "SELECT 1; LOCK TABLE $t; SELECT 2",
    "CREATE INDEX ASYNC ON $t (k); SELECT 1; CREATE INDEX ASYNC ON $t (k)",
    "BEGIN; SELECT '$m'; COMMIT",
    "BEGIN; LOCK TABLE $t; COMMIT",
    "INSERT INTO $t VALUES (8, 'x'); DELETE FROM $t WHERE k = 8",
    "COPY $t TO STDOUT; SELECT 1",
    "COPY $t FROM STDIN; SELECT 1",
)
_NAMES: Final = ("", "", "a", "b")


def query(text: str) -> bytes:
    """A simple query."""
    return frames.message(frames.QUERY, text.encode() + b"\0")


def parse(text: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    """Parse."""
    payload = name.encode() + b"\0" + text.encode() + b"\0" + struct.pack(f">H{len(types)}I", len(types), *types)
    return frames.message(frames.PARSE, payload)


def bind(portal: str = "", statement: str = "", values: Sequence[bytes | None] = ()) -> bytes:
    """Bind, with texts."""
    payload = portal.encode() + b"\0" + statement.encode() + b"\0" + struct.pack(">HH", 0, len(values))
    for value in values:
        payload += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return frames.message(frames.BIND, payload + struct.pack(">H", 0))


def describe(kind: str, name: str = "") -> bytes:
    """Describe a statement (S) or a portal (P)."""
    return frames.message(ord("D"), kind.encode() + name.encode() + b"\0")


def execute(portal: str = "", most: int = 0) -> bytes:
    """Execute."""
    return frames.message(frames.EXECUTE, portal.encode() + b"\0" + struct.pack(">I", most))


def close(kind: str, name: str = "") -> bytes:
    """Close a statement (S) or a portal (P)."""
    return frames.message(frames.CLOSE, kind.encode() + name.encode() + b"\0")


def copy_data(data: bytes) -> bytes:
    """CopyData."""
    return frames.message(frames.COPY_DATA, data)


def _text(r: random.Random) -> str:
    kind = r.random()
    return r.choice(PLAIN if kind < 0.7 else JUDGED if kind < 0.9 else COPIES)


def _cycle(r: random.Random) -> list[bytes]:
    """Parse, Bind, Execute of one statement, with what clients put in between or leave out."""
    text = _text(r)
    if text in ("COMMIT", "ROLLBACK"):
        # Portals that were bound before the end of a transaction and are executed after it: nobody's business.
        return [query(text)]
    name, portal = r.choice(_NAMES), r.choice(_NAMES)
    parts = [parse(text, name)]
    if r.random() < 0.3:
        parts.append(describe("S", name))
    if r.random() < 0.1:
        parts.append(FLUSH)
    parts.append(bind(portal, name))
    if r.random() < 0.5:
        parts.append(describe("P", portal))
    limited = "generate_series" in text and r.random() < 0.5
    parts += [execute(portal, 2), execute(portal, 2)] if limited else [execute(portal)]
    if r.random() < 0.2:
        parts.append(close(r.choice("SP"), r.choice(_NAMES)))
    if "FROM STDIN" in text:
        parts += _copied(r)
    if r.random() < 0.15 and "FROM STDIN" not in text:
        del parts[r.randrange(len(parts))]
    if r.random() < 0.6:
        parts.append(SYNC)
    elif r.random() < 0.3:
        parts.append(FLUSH)
    return parts


def _copied(r: random.Random) -> list[bytes]:
    # It ends as it should: what PostgreSQL answers to those who send something else in the middle is left to it.
    parts = [copy_data(r.choice((b"21\tx\n", b"22\t", b"y\n", b"bad\n", b"\\.\n", b""))) for _ in range(r.randrange(4))]
    if r.random() < 0.3:
        parts.insert(r.randint(0, len(parts)), FLUSH)
    return [*parts, r.choice((COPY_DONE, COPY_FAIL))]


def well_formed(r: random.Random) -> list[bytes]:
    """Messages that are well-formed each, in an order that may be wild: unsynced, interrupted, half forgotten."""
    parts: list[bytes] = []
    for _ in range(r.randint(1, 6)):
        kind = r.random()
        if kind < 0.55:
            parts += _cycle(r)
        elif kind < 0.75:
            text = _text(r)
            parts.append(query(text))
            if "FROM STDIN" in text:
                parts += _copied(r)
        elif kind < 0.9:
            parts.append(query(r.choice(STRINGS)))
        else:
            parts.append(
                r.choice(
                    (SYNC, FLUSH, COPY_DONE, COPY_FAIL, copy_data(b"x"), execute("a"), close("S", "a"), bind("b", "a"))
                )
            )
    return parts


_COUNTS: Final = (0, 1, 2, 255, 32_767, 32_768, 65_535)
_SIZES: Final = (-2, -1, 0, 1, 2**16, 2**31 - 1, -(2**31))


def _strange(r: random.Random) -> bytes:
    """A message whose frame is right and whose inside may be anything."""
    kind = r.randrange(9)
    if kind == 0:
        payload = b"\0\0" + struct.pack(">HH", r.choice(_COUNTS), r.choice(_COUNTS)) + r.randbytes(r.randrange(20))
        return frames.message(frames.BIND, payload)
    if kind == 1:
        payload = b"\0\0" + struct.pack(">HHi", 0, 1, r.choice(_SIZES)) + r.randbytes(r.randrange(8))
        return frames.message(frames.BIND, payload)
    if kind == 2:
        return frames.message(frames.PARSE, b"\0SELECT 1\0" + struct.pack(">H", r.choice(_COUNTS)) + r.randbytes(4))
    if kind == 3:
        return frames.message(frames.EXECUTE, b"\0" + r.randbytes(r.randrange(8)))
    if kind == 4:
        return frames.message(r.choice((frames.QUERY, frames.PARSE)), r.randbytes(r.randrange(60)))
    if kind == 5:
        return frames.message(r.choice(b"BCDEFHPQSdcf"), b"")
    if kind == 6:
        return frames.message(frames.FUNCTION_CALL, r.randbytes(r.randrange(30)))
    if kind == 7:
        return query("SELECT " + "(" * r.choice((1, 50, 2000)) + "1" + ")" * r.choice((1, 50, 2000)))
    return frames.message(frames.QUERY, "SELECT 'é\0'; SELECT 1\0".encode(r.choice(("utf-8", "latin-1"))))


def _reframed(part: bytes, r: random.Random) -> bytes:
    """A message bent inside its frame."""
    return frames.message(part[0], bent(part[frames.HEADER_SIZE :], r, 2))


def bent_inside(r: random.Random) -> list[bytes]:
    """Messages whose frames are right while their insides are not."""
    parts = well_formed(r)
    for _ in range(r.randint(1, 3)):
        place = r.randrange(len(parts))
        parts[place] = _strange(r) if r.random() < 0.5 else _reframed(parts[place], r)
    return [part for part in parts if part[0] != frames.TERMINATE]


def broken(r: random.Random) -> bytes:
    """A stream in which frames may be cut off, or lie about their length, or be of no known kind."""
    data = b"".join(well_formed(r))
    kind = r.random()
    if kind < 0.3:
        return data[: r.randrange(len(data))]
    if kind < 0.5:
        place = r.choice([0, len(data)])
        size = r.choice((0, 3, 4, 5, 100, 10 * 2**20, 10 * 2**20 + 4, 10 * 2**20 + 5, 2**31, 2**32 - 1))
        return data[:place] + bytes([r.choice(b"QPBdXZ\0\xff")]) + size.to_bytes(4, "big") + data
    return bent(data, r)
