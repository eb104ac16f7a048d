"""What comes from PostgreSQL: command tags and errors are replaced on their way, everything else goes on as it came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.sandbox.names import KEYS_NOTICE
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
from pytest_dsql.local.gateway.group import Group

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: In a notice that tells keys.
_KEYS: Final = KEYS_NOTICE.encode()

_FATAL: Final = (b"VFATAL\0", b"VPANIC\0")

_LOOKED_AT: Final = frozenset(
    {
        *(COMMAND_COMPLETE, EMPTY_QUERY, ERROR_RESPONSE, NOTICE_RESPONSE, PORTAL_SUSPENDED, READY_FOR_QUERY),
        frames.PARSE_COMPLETE,
    }
)


#: What counts even where the client gets nothing of the answer.
_HEARD: Final = frozenset({ERROR_RESPONSE, READY_FOR_QUERY})

#: Where rows are relayed, a statement is run; its Parse and Bind were answered before, or are the engine's own.
OWN_ANSWERS: Final = frozenset({frames.PARSE_COMPLETE, frames.BIND_COMPLETE, frames.CLOSE_COMPLETE})

#: What PostgreSQL answers before the rows of a statement in the extended protocol.
BEFORE_ROWS: Final = frozenset({*OWN_ANSWERS, frames.ROW_DESCRIPTION, *b"tn"})


class BackendLost(Exception):
    """PostgreSQL's connection ended while an answer was awaited."""


@final
class Backend(asyncio.Protocol):
    """PostgreSQL's side of a session."""

    __slots__ = ("_held", "_needed", "_session", "_skip", "lost", "said_fatal", "transport")

    def __init__(self, session: Session) -> None:
        self.transport: asyncio.Transport
        self.lost = False
        self.said_fatal = False  #: PostgreSQL has told the client why it closes
        self._session = session
        self._skip = 0  #: bytes still to come of a frame whose beginning has gone on
        self._held = bytearray()  #: the beginning of a frame that can only go on whole
        self._needed = 0  #: its length as far as known

    @property
    def between_frames(self) -> bool:
        """Whether the client has received whole frames so far."""
        return self._skip == 0

    async def ask(self, data: bytes, *, relays_rows: bool = False, until_copy: bool = False) -> Group:
        """Send messages of which the last one is answered with ReadyForQuery, and give the answer.

        Raises BackendLost.
        """
        group = self.begin(data, relays_rows=relays_rows, until_copy=until_copy)
        assert group.asked is not None
        await group.asked
        return group

    def begin(self, data: bytes, *, relays_rows: bool = False, until_copy: bool = False) -> Group:
        """Do the same without waiting: the answer is there when its `asked` is done."""
        if self.lost or self._session.over:
            raise BackendLost
        group = Group(asked=asyncio.get_running_loop().create_future(), relays_rows=relays_rows, until_copy=until_copy)
        self._session.group = group
        if data:
            self.transport.write(data)
        if self._held:
            # What came with the end of the answer before: PostgreSQL may take back its CopyInResponse at once.
            asyncio.get_running_loop().call_soon(self.data_received, b"")
        return group

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
        elif session.express.under_way and not self._skip and session.express.answers(data):
            return
        group = session.group
        if group is not None and session.express.under_way:
            # Of a message that nobody has asked for, a part had come before the statement was sent.
            session.express.give_up(group)
        if group is not None and group.asked is not None:
            self._collect(data, group)
            return
        position = self._skip
        end = len(data)
        pieces: list[bytes] = []
        passed = 0  # up to here the chunk is in `pieces`
        last = end - HEADER_SIZE
        unpack = HEADER.unpack_from
        muted = group is not None and group.muted
        done = False
        while position <= last:
            kind, length = unpack(data, position)
            # Rows first: they may be many, and go on as they come.
            if kind == DATA_ROW and not muted:
                position += 1 + length
                continue
            after = position + 1 + length
            if muted and kind not in _HEARD and after <= end:
                if passed < position:
                    pieces.append(data[passed:position])
                passed = position = after
                continue
            if kind in _LOOKED_AT or muted:
                # Everything that isn't looked at goes on as it comes, unfinished frames too.
                if after > end:
                    break
                replacement: bytes | None
                if kind == READY_FOR_QUERY:
                    session.status = data[position + HEADER_SIZE]
                    done = True
                    replacement = None if group is None or not group.muted or group.only_first else b""
                elif muted:
                    replacement = self._muted(kind, data[position + HEADER_SIZE : after])
                else:
                    if group is not None and position:
                        group.answering = True
                    replacement = self._look(kind, data[position + HEADER_SIZE : after], group)
                    muted = group is not None and group.muted
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
        if group is not None and not group.contested:
            group.answering = True
        if pieces:
            pieces.append(data[passed:position])
            session.send(b"".join(pieces))
        elif position == end:
            session.send(data)
        elif position:
            session.send(data[:position])
        if done and group is not None:
            session.answered(group)

    def _look(self, kind: int, payload: bytes, group: Group | None) -> bytes | None:
        """Look at a frame that may have to be replaced; give the whole message to send instead."""
        if kind == ERROR_RESPONSE:
            if any(severity in payload for severity in _FATAL):
                self.said_fatal = True
            if group is not None:
                return self._session.failed(group, payload)
            self._session.skipping = True
            return disguise.replace_error(payload)
        if kind == NOTICE_RESPONSE:
            return (
                b"" if _KEYS in payload and self._session.contender.told(payload) else disguise.replace_notice(payload)
            )
        if kind == frames.PARSE_COMPLETE:
            self._session.frontend.names.parsed()
            return None
        # A completion: CommandComplete, EmptyQueryResponse or PortalSuspended.
        if group is None:
            return None
        return self._session.completed(group, payload[:-1] if kind == COMMAND_COMPLETE else b"")

    def _muted(self, kind: int, payload: bytes) -> bytes:
        if kind == ERROR_RESPONSE and any(severity in payload for severity in _FATAL):
            self.said_fatal = True
            return frames.message(kind, payload)
        return b""

    def _collect(self, data: bytes, group: Group) -> None:
        """Collect an answer that somebody has asked for."""
        session = self._session
        position = 0
        end = len(data)
        passed: list[bytes] = []
        while end - position >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(data, position)
            after = position + 1 + length
            if after > end:
                break
            whole = data[position:after]
            position = after
            if kind == READY_FOR_QUERY:
                session.status = whole[HEADER_SIZE]
                self._answer(group)
                break
            if group.relays_rows and kind in OWN_ANSWERS:
                continue
            if kind in (DATA_ROW, frames.COPY_DATA) and group.relays_rows:
                passed += group.collected
                group.collected.clear()
                passed.append(whole)
                continue
            if kind == NOTICE_RESPONSE:
                if _KEYS in whole and session.contender.told(whole[HEADER_SIZE:]):
                    continue
                whole = disguise.replace_notice(whole[HEADER_SIZE:]) or whole
            elif kind == ERROR_RESPONSE:
                payload = whole[HEADER_SIZE:]
                group.error = frames.fields(payload)
                if any(severity in payload for severity in _FATAL):
                    self.said_fatal = True
                    passed.append(whole)
                    continue
            elif kind == COMMAND_COMPLETE:
                group.tag = whole[HEADER_SIZE:-1]
                group.tags.append(group.tag)
            elif kind in (EMPTY_QUERY, PORTAL_SUSPENDED):
                group.tag = b""
            group.collected.append(whole)
            if kind == COPY_IN_RESPONSE and group.until_copy:
                self._answer(group)
                break
        if position < end:
            self._held += data[position:]
            rest = end - position
            self._needed = HEADER_SIZE if rest < HEADER_SIZE else 1 + HEADER.unpack_from(data, position)[1]
        if passed:
            session.send(b"".join(passed))

    def _answer(self, group: Group) -> None:
        self._session.group = None
        if group.asked is not None and not group.asked.done():
            group.asked.set_result(None)

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
        group = self._session.group
        if group is not None and group.asked is not None and not group.asked.done():
            group.asked.set_exception(BackendLost())
        self._session.backend_gone()
