"""What comes from PostgreSQL: command tags and errors are replaced on their way, everything else goes on as it came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.frames import (
    COMMAND_COMPLETE,
    COPY_IN_RESPONSE,
    DATA_ROW,
    EMPTY_QUERY,
    ERROR_RESPONSE,
    HEADER,
    HEADER_SIZE,
    NOTICE_RESPONSE,
    PORTAL_SUSPENDED,
    READY_FOR_QUERY,
)

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

_IDLE: Final = ord("I")
_FATAL: Final = (b"VFATAL\0", b"VPANIC\0")

_LOOKED_AT: Final = frozenset(
    {
        COMMAND_COMPLETE,
        COPY_IN_RESPONSE,
        EMPTY_QUERY,
        ERROR_RESPONSE,
        NOTICE_RESPONSE,
        PORTAL_SUSPENDED,
        READY_FOR_QUERY,
    }
)


@final
class Backend(asyncio.Protocol):
    """PostgreSQL's side of a session."""

    __slots__ = ("_completions", "_held", "_needed", "_session", "_skip", "lost", "said_fatal", "transport")

    def __init__(self, session: Session) -> None:
        self.transport: asyncio.Transport
        self.lost = False
        self.said_fatal = False  #: PostgreSQL has told the client why it closes
        self._session = session
        self._skip = 0  #: bytes still to come of a frame whose beginning has gone on
        self._held = bytearray()  #: the beginning of a frame that can only go on whole
        self._needed = 0  #: its length as far as known
        self._completions = 0  #: of the group that is being answered

    @property
    def between_frames(self) -> bool:
        """Whether the client has received whole frames so far."""
        return self._skip == 0

    def data_received(self, data: bytes) -> None:
        """Walk the frames of a chunk and pass it on."""
        session = self._session
        if session.over:
            return
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held = bytearray()
        position = self._skip
        end = len(data)
        pieces: list[bytes] = []
        passed = 0  # up to here the chunk is in `pieces`
        rests = False
        last = end - HEADER_SIZE
        unpack = HEADER.unpack_from
        while position <= last:
            kind, length = unpack(data, position)
            # Rows first: they may be many, and go on as they come.
            if kind == DATA_ROW:
                position += 1 + length
                continue
            after = position + 1 + length
            if kind in _LOOKED_AT:
                # Everything that isn't looked at goes on as it comes, unfinished frames too.
                if after > end:
                    break
                if kind == READY_FOR_QUERY:
                    session.status = data[position + HEADER_SIZE]
                    self._completions = 0
                    rests = session.status == _IDLE
                    if session.groups:
                        session.groups.popleft()
                else:
                    replacement = self._look(kind, data[position + HEADER_SIZE : after])
                    if replacement is not None:
                        pieces += (data[passed:position], replacement)
                        passed = after
            position = after
        if position > end:
            self._skip = position - end
            position = end
        else:
            self._skip = 0
            if position < end:
                self._needed = HEADER_SIZE if position > last else 1 + HEADER.unpack_from(data, position)[1]
                self._held += data[position:]
        write = session.frontend.transport.write
        if pieces:
            pieces.append(data[passed:position])
            write(b"".join(pieces))
        elif position == end:
            write(data)
        elif position:
            write(data[:position])
        if rests and session.at_rest is not None:
            session.at_rest()

    def _look(self, kind: int, payload: bytes) -> bytes | None:
        """Look at a frame that may have to be replaced; give the whole message to send instead."""
        session = self._session
        if kind == ERROR_RESPONSE:
            # Syncs that the client sent while its COPY was going on were ignored; the one it sends next is answered.
            session.copy_ended()
            if any(severity in payload for severity in _FATAL):
                self.said_fatal = True
            return disguise.replace_error(payload)
        if kind == NOTICE_RESPONSE:
            return disguise.replace_notice(payload)
        if kind == COPY_IN_RESPONSE:
            session.copying_in = True
            return None
        # A completion: CommandComplete, EmptyQueryResponse or PortalSuspended, one for each statement or Execute.
        session.copying_in = False
        place = self._completions
        self._completions = place + 1
        tags = session.groups[0].tags if session.groups else session.open_tags
        if tags and kind == COMMAND_COMPLETE:
            tag = tags.get(place)
            if tag is not None:
                return frames.message(COMMAND_COMPLETE, tag + b"\0")
        return None

    @property
    def completions(self) -> int:
        """Statements completed in the group that is being answered."""
        return self._completions

    def leave(self) -> None:
        """Close PostgreSQL's connection as a client would."""
        if not self.transport.is_closing():
            self.transport.write(frames.TERMINATE_MESSAGE)
            self.transport.close()

    def pause_writing(self) -> None:
        """PostgreSQL reads too slowly: the client waits."""
        self._session.frontend.pause()

    def resume_writing(self) -> None:
        """PostgreSQL has caught up."""
        self._session.frontend.resume()

    def pause(self) -> None:
        """Stop reading."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """PostgreSQL is gone."""
        self.lost = True
        self._held = bytearray()
        self._session.backend_gone()
