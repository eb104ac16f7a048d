"""The parser and the scanner of PostgreSQL, called in the shared library that the postgast wheel carries.

The library is called directly because postgast decodes parse trees as protobuf messages: that costs 140 ms at import
and refuses trees deeper than about 50 operators (`a || b || ...`), while the library also gives the tree as JSON.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pytest_dsql.errors import MissingExtra

_LIBRARY: Final = {"darwin": "libpg_query.dylib", "win32": "pg_query.dll"}.get(sys.platform, "libpg_query.so")


class ParseError(Exception):
    """PostgreSQL's parser refused the text; the message is the parser's own."""


class _Error(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char_p),
        ("funcname", ctypes.c_char_p),
        ("filename", ctypes.c_char_p),
        ("lineno", ctypes.c_int),
        ("cursorpos", ctypes.c_int),
        ("context", ctypes.c_char_p),
    )


class _ParseResult(ctypes.Structure):
    _fields_ = (
        ("parse_tree", ctypes.c_char_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


class _ScanResult(ctypes.Structure):
    # The tokens hold null bytes, so they must not be read as a C string.
    _fields_ = (
        ("len", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    import importlib.util

    found = importlib.util.find_spec("postgast")
    folders = (found.submodule_search_locations or []) if found else []
    path = next((path for folder in folders if (path := Path(folder, _LIBRARY)).is_file()), None)
    if path is None:
        raise MissingExtra("the embedded engine", "local")
    library = ctypes.CDLL(str(path))
    for name, result in (("parse", _ParseResult), ("scan", _ScanResult)):
        function = getattr(library, f"pg_query_{name}")
        function.argtypes, function.restype = (ctypes.c_char_p,), result
        free = getattr(library, f"pg_query_free_{name}_result")
        free.argtypes, free.restype = (result,), None
    return library


# The library walks the tree recursively and does not look at the stack: about 130 bytes for each of `1+1+1+...`, which
# is the deepest tree that a text of some length can make (60,000 terms end the process on a stack of 8 MiB). So a text
# that could need more than the smallest of stacks is parsed on one that fits it; memory is only taken for what is used.
_SHORT: Final = 4_096  # bytes
_STACK_PER_BYTE: Final = 128
_stack_size_lock: Final = threading.Lock()


def parse(text: bytes) -> bytes:
    """Return the parse trees of the statements in `text` as JSON. Offsets in it count bytes of `text`.

    `text` is UTF-8 without null bytes. Raises ParseError when PostgreSQL's parser refuses it, or when there is no
    room to parse it.
    """
    if len(text) <= _SHORT:
        return _parse(text)
    answer: list[bytes | ParseError] = []

    def run() -> None:
        try:
            answer.append(_parse(text))
        except ParseError as error:
            answer.append(error)

    thread = threading.Thread(target=run, name="dialect-parse")
    # A multiple of the page size, and never less than a thread needs anyway.
    stack = max(1 << 20, len(text) * _STACK_PER_BYTE + (1 << 18)) + 0xFFFF & ~0xFFFF
    with _stack_size_lock:
        before = threading.stack_size(stack)
        try:
            thread.start()
        except RuntimeError as error:
            raise ParseError(f"no stack of {stack} bytes to parse a text of {len(text)}: {error}") from error
        finally:
            threading.stack_size(before)
    thread.join()
    if isinstance(answer[0], ParseError):
        raise answer[0]
    return answer[0]


def _parse(text: bytes) -> bytes:
    library = _library()
    result = library.pg_query_parse(text)
    try:
        if result.error:
            raise ParseError((result.error.contents.message or b"").decode("utf-8", "replace"))
        tree: bytes = result.parse_tree
        return tree
    finally:
        library.pg_query_free_parse_result(result)


class Token(NamedTuple):
    """One token of a statement; comments are no tokens here."""

    start: int  #: byte offset of its first byte
    end: int  #: byte offset behind its last byte
    text: bytes  #: as written

    @property
    def word(self) -> str:
        """The token in capitals. A quoted name keeps its quotes, so that it never equals a key word."""
        return self.text.decode("utf-8", "replace").upper()


def scan(text: bytes) -> list[Token]:
    """Return the tokens of `text`. Raises ParseError when the scanner refuses it (an open literal, for instance)."""
    library = _library()
    result = library.pg_query_scan(text)
    try:
        if result.error:
            raise ParseError((result.error.contents.message or b"").decode("utf-8", "replace"))
        encoded = ctypes.string_at(result.data, result.len)
    finally:
        library.pg_query_free_scan_result(result)
    tokens = []
    for number, token in _fields(encoded):
        if number == 2 and isinstance(token, bytes):
            places = {field: value for field, value in _fields(token) if isinstance(value, int)}
            start, end = places.get(1, 0), places.get(2, 0)
            written = text[start:end]
            if not written.startswith((b"--", b"/*")):
                tokens.append(Token(start, end, written))
    return tokens


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    # Protocol buffers wire format: only the two wire types that ScanResult uses.
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        value, place = _varint(message, place)
        if key & 7 == 0:
            yield key >> 3, value
        else:
            yield key >> 3, message[place : place + value]
            place += value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
