"""Why a connection could not be made: libpq's text taken apart into message, SQLSTATE and hint.

libpq keeps the SQLSTATE of a refused connection to itself: there is no result object, only a text, and that shows the
SQLSTATE only at the verbosity that psycopg has no call for. psycopg exposes the connection's address for such calls.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, final

from psycopg import pq

from pytest_dsql.masking import mask

# PGVerbosity in libpq-fe.h.
_DEFAULT: Final = 1
_VERBOSE: Final = 2

_PREFIX: Final = re.compile(r"connection to server (?:at|on socket) .*? failed: ")
_VERBOSE_HEAD: Final = re.compile(r"[^\s:]+:\s+(?P<sqlstate>[0-9A-Z]{5}): ")
_TERSE_HEAD: Final = re.compile(r"(?:FATAL|ERROR|PANIC):\s+")
_FIELD: Final = re.compile(r"\n([A-Z][A-Z ]+):  ")

#: For a libpq whose verbosity can't be set. Sources: AWS user guide, "Troubleshooting issues in Aurora DSQL" and
#: "Cluster quotas and database limits"; PostgreSQL's sources. Lower case.
_SQLSTATES: Final = (
    ("unable to accept connection, access denied", "08006"),
    ("unable to accept connection, too many open connections", "53300"),
    ("unable to accept connection, rate exceeded", "53400"),
    ("setting configuration parameter", "0A000"),
    ("password authentication failed for user", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("sorry, too many clients already", "53300"),
    ("remaining connection slots are reserved", "53300"),
    ("the database system is", "57P03"),
)


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """What libpq had to say, masked, in one line each."""

    message: str
    sqlstate: str | None  #: None when no server said anything
    hint: str | None
    answered: bool  #: a server spoke, so another address of the same host would say the same


def show_sqlstate(pgconn: pq.abc.PGconn) -> None:
    """Let a connection that is being made report the SQLSTATE of a refusal, if this libpq can be asked to."""
    _set_verbosity(pgconn, _VERBOSE)


def hide_sqlstate(pgconn: pq.abc.PGconn) -> None:
    """Return a connection that was made to the usual error texts."""
    _set_verbosity(pgconn, _DEFAULT)


def refusal(pgconn: pq.abc.PGconn) -> Refusal:
    """Take the text of a failed connection apart."""
    return parse(pgconn.error_message.decode("utf-8", "replace"))


def parse(text: str) -> Refusal:
    """Take libpq's text apart: at the verbosity that shows the SQLSTATE, or at the usual one."""
    # After several attempts of its own (with and without TLS) libpq lists them all; the last one counts.
    body = _PREFIX.split(text.strip())[-1]
    head, *fields = _FIELD.split(body)
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    hint = _line(named["HINT"]) if "HINT" in named else None
    if match := _VERBOSE_HEAD.match(head):
        return Refusal(_line(head[match.end() :]), match["sqlstate"], hint, answered=True)
    if match := _TERSE_HEAD.match(head):
        message = _line(head[match.end() :])
        lowered = message.lower()
        known = next((sqlstate for mark, sqlstate in _SQLSTATES if mark in lowered), None)
        return Refusal(message, known, hint, answered=True)
    return Refusal(_line(body) or "no reason given", None, None, answered=False)


def _line(text: str) -> str:
    return mask(" ".join(text.split()))


def _set_verbosity(pgconn: pq.abc.PGconn, verbosity: int) -> None:
    function = _verbosity_function()
    address = getattr(pgconn, "pgconn_ptr", None)  # documented, but not in psycopg's protocol class
    if function is not None and address is not None:
        function(address, verbosity)


@cache
def _verbosity_function() -> Callable[[int, int], int] | None:
    """Return libpq's PQsetErrorVerbosity from the very library that psycopg uses, None where it can't be reached.

    Another libpq of this machine would write to another place of the connection's memory. So the symbol is looked up
    through psycopg's extension module, whose own libpq the dynamic linker searches.
    """
    import ctypes

    library: Any
    try:
        if pq.__impl__ == "python":
            library = import_module("psycopg.pq._pq_ctypes").pq
        else:
            library = ctypes.CDLL(sys.modules[f"psycopg_{pq.__impl__}.pq"].__file__)
        function = library.PQsetErrorVerbosity
    except (ImportError, KeyError, OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]  # ctypes functions have no type of their own
