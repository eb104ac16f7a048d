"""A connection to PostgreSQL that sessions use in turn, and what is done to it between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.disguise import INTERNAL_PREFIX
from pytest_dsql.local.gateway.frames import HEADER, HEADER_SIZE
from pytest_dsql.local.gateway.opening import Opened

_OWN: Final = INTERNAL_PREFIX.encode() + b"_lending"
_SYNC: Final = frames.message(frames.SYNC, b"")
_FORGET: Final = frames.message(frames.QUERY, b"DEALLOCATE ALL\0")
#: lastval() fails with 55000 where no sequence has given a value in this session (PostgreSQL documentation, "Sequence
#: Manipulation Functions"). Under a name of its own, so that the session's unnamed statement stays.
_SEQUENCES: Final = b"".join(
    (
        frames.message(frames.PARSE, _OWN + b"\0SELECT pg_catalog.lastval()\0\0\0"),
        frames.message(frames.BIND, b"\0" + _OWN + b"\0" + bytes(6)),
        frames.message(frames.EXECUTE, b"\0" + bytes(4)),
        frames.message(frames.CLOSE, b"S" + _OWN + b"\0"),
        _SYNC,
        # After an error the Close above was skipped.
        frames.message(frames.CLOSE, b"S" + _OWN + b"\0"),
        _SYNC,
    )
)
_NO_VALUE: Final = b"55000"

_Frame: TypeAlias = tuple[int, bytes]


@final
class PooledBackend(asyncio.Protocol):
    """One connection to PostgreSQL. It is its own protocol while no session has it."""

    __slots__ = (
        "_answer",
        "_buffer",
        "_frames",
        "_gone",
        "_readies",
        "counted",
        "form",
        "greeting",
        "key",
        "lost",
        "owner",
        "ready",
        "transport",
        "used",
        "version",
    )

    def __init__(self, opened: Opened, form: Any, version: int, gone: Callable[[PooledBackend], object]) -> None:
        self.transport = opened.transport
        self.key = opened.key  #: PostgreSQL's cancellation key
        self.greeting = opened.greeting
        self.ready = opened.ready
        self.form = form  #: whose it is, and with which settings it began
        self.version = version  #: of the catalog when it was opened
        self.owner: Any = None  #: whose session's prepared statements are in it
        self.used = False  #: a session has had it
        self.lost = False
        self.counted = True  #: among the lender's connections
        self._gone = gone
        self._buffer = b""
        self._frames: list[_Frame] = []
        self._readies = 0  #: ReadyForQuery messages that are still to come
        self._answer: asyncio.Future[list[_Frame]] | None = None
        opened.transport.set_protocol(self)

    async def forget_statements(self) -> None:
        """Remove every prepared statement, the unnamed one too. Raises OSError when the connection ends."""
        await self._ask(_FORGET, 1)

    async def make_statements(self, statements: Sequence[bytes]) -> None:
        """Prepare statements by their Parse messages.

        One that fails is left out: what it refers to is gone. Raises OSError when the connection ends.
        """
        await self._ask(b"".join(parse + _SYNC for parse in statements), len(statements))

    async def has_no_sequence_values(self) -> bool:
        """Tell whether no sequence has given a value in this connection. Raises OSError when the connection ends."""
        answer = await self._ask(_SEQUENCES, 2)
        errors = [frames.fields(payload) for kind, payload in answer if kind == frames.ERROR_RESPONSE]
        return any(error.get("C") == _NO_VALUE for error in errors)

    async def _ask(self, data: bytes, readies: int) -> list[_Frame]:
        if self.lost:
            raise ConnectionResetError("PostgreSQL has closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._readies = readies
        self._frames = []
        self.transport.write(data)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Collect the answer that somebody waits for; what comes unasked is nobody's."""
        self._buffer += data
        while len(self._buffer) >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < 1 + length:
                return
            payload = self._buffer[HEADER_SIZE : 1 + length]
            self._buffer = self._buffer[1 + length :]
            if self._answer is None:
                continue
            self._frames.append((kind, payload))
            if kind == frames.READY_FOR_QUERY:
                self._readies -= 1
                if not self._readies:
                    answer, self._answer = self._answer, None
                    if not answer.done():
                        answer.set_result(self._frames)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """PostgreSQL has ended it."""
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("PostgreSQL has closed the connection"))
        self._gone(self)

    def close(self) -> None:
        """Say goodbye to PostgreSQL."""
        self.lost = True
        if not self.transport.is_closing():
            self.transport.write(frames.TERMINATE_MESSAGE)
            self.transport.close()
