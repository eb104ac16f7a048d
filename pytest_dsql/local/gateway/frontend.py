"""What comes from the client: texts are judged on their way, everything else goes on as it came."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.frames import BIND, EXECUTE, HEADER, HEADER_SIZE, PARSE, QUERY, SYNC
from pytest_dsql.local.gateway.statements import Decision

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: Messages whose text is judged beside the loop, so that other sessions are served meanwhile: from this many bytes on
#: judging takes longer than handing it over. A megabyte of INSERTs takes seconds.
LONG_MESSAGE: Final = 65_536

_BAD_LENGTH: Final = frames.error("FATAL", "08P01", "invalid message length")

_NO_TAGS: Final[Mapping[int, bytes]] = {}


@final
class Group:
    """What ends with one ReadyForQuery: a simple query, or everything up to a Sync."""

    __slots__ = ("is_query", "tags")

    def __init__(self, tags: Mapping[int, bytes], *, is_query: bool) -> None:
        self.tags = tags  #: command tags to answer instead of PostgreSQL's, by the completion's place in the group
        self.is_query = is_query


_QUERY: Final = Group(_NO_TAGS, is_query=True)
_SYNC: Final = Group(_NO_TAGS, is_query=False)


#: DSQL's rules could be evaded through the function-call protocol. The text is an inference from DSQL's others.
_REFUSED_CALL: Final = frames.message(
    QUERY, disguise.failing_statement(Refusal("0A000", "function call protocol not supported")).encode() + b"\0"
)


@final
class Frontend(asyncio.Protocol):
    """The client's side of a session."""

    __slots__ = (
        "_decision",
        "_held",
        "_judging",
        "_needed",
        "_paused",
        "_session",
        "_skip",
        "_tagged_portals",
        "_tagged_statements",
        "_tagging",
        "executes",
        "lost",
        "transport",
    )

    def __init__(self, session: Session) -> None:
        self.transport: asyncio.Transport
        self.lost = False
        self.executes = 0  #: Execute messages in the group that no Sync has ended yet
        self._session = session
        self._skip = 0  #: bytes still to come of a frame whose beginning has gone on
        self._held = bytearray()  #: the beginning of a frame that can only go on whole
        self._needed = 0  #: its length as far as known
        self._judging = False  #: the first message in `_held` is being judged; what comes meanwhile waits behind it
        self._decision: Decision | None = None  #: on the long message that is looked at next
        self._paused = False  #: PostgreSQL reads too slowly
        self._tagging = False  #: whether there was a prepared statement whose command tag is not PostgreSQL's
        self._tagged_statements: dict[bytes, bytes] = {}  #: their tags, by the statement's name
        self._tagged_portals: dict[bytes, bytes] = {}

    def data_received(self, data: bytes) -> None:
        """Walk the frames of a chunk and pass it on."""
        session = self._session
        if session.over:
            return
        if self._judging:
            self._held += data
            return
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held = bytearray()
        # A longer message closes the connection without a word, as seen on clusters in October 2026; the AWS user guide
        # ("Troubleshooting") has an error for it.
        longest = session.cluster.limits.message_bytes + 4
        position = self._skip
        end = len(data)
        pieces: list[bytes] = []
        passed = 0  # up to here the chunk is in `pieces`
        while end - position >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(data, position)
            after = position + 1 + length
            if not 4 <= length <= longest:
                session.broken(_BAD_LENGTH if length < 4 else b"")
                return
            if after > end:
                break
            if kind == BIND:
                if self._tagging:
                    self._note_bind(data[position + HEADER_SIZE : after])
            elif kind == EXECUTE:
                if self._tagging:
                    self._note_execute(data[position + HEADER_SIZE : after])
                self.executes += 1
            elif kind == SYNC:
                self.executes = 0
                if session.open_tags:
                    session.groups.append(Group(session.open_tags, is_query=False))
                    session.open_tags = {}
                else:
                    session.groups.append(_SYNC)
            elif kind in _LOOKED_AT:
                if length >= LONG_MESSAGE and self._judge_elsewhere(kind, data[position + HEADER_SIZE : after]):
                    break
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
                position = self._keep(data, position)
        write = session.backend.transport.write
        if pieces:
            pieces.append(data[passed:position])
            write(b"".join(pieces))
        elif position == end:
            write(data)
        elif position:
            write(data[:position])

    def _keep(self, data: bytes, position: int) -> int:
        """Deal with an unfinished frame at the end of a chunk; tell up to where the chunk may go on."""
        if self._judging:
            self._held += data[position:]
            return position
        end = len(data)
        self._needed = HEADER_SIZE
        if end - position >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(data, position)
            # Rows to copy and parameters go on as they come; nothing in them matters here.
            if kind == frames.COPY_DATA or (kind == BIND and not self._tagging):
                self._skip = position + 1 + length - end
                return end
            self._needed = 1 + length
        self._held += data[position:]
        return position

    def _look(self, kind: int, payload: bytes) -> bytes | None:
        """Look at a frame that may have to be replaced; give the whole message to send instead."""
        session = self._session
        if kind == QUERY:
            return self._query(payload)
        if kind == PARSE:
            return self._parse(payload)
        if kind == frames.CLOSE:
            tagged = self._tagged_statements if payload[:1] == b"S" else self._tagged_portals
            tagged.pop(payload[1:-1], None)
        elif kind == frames.FUNCTION_CALL:
            self._sent_query(_NO_TAGS)
            return _REFUSED_CALL
        elif kind == frames.TERMINATE:
            session.leaving = True
        else:
            session.copy_ended()
        return None

    def _judge_elsewhere(self, kind: int, payload: bytes) -> bool:
        """Have a long text judged by a thread; tell whether its message has to wait for that."""
        if self._decision is not None or kind not in (QUERY, PARSE):
            return False
        found = frames.texts(payload, 1 if kind == QUERY else 2)
        if found is None:
            return False
        text = found[0][-1]
        session = self._session
        loop = asyncio.get_running_loop()

        def judge() -> None:
            decision = session.statements.decide_long(text, session.cluster.rules)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway ended meanwhile
                loop.call_soon_threadsafe(self._judged, decision)

        self._judging = True
        self.transport.pause_reading()
        # A daemon: the end of the process doesn't wait for what nobody will be told.
        threading.Thread(target=judge, name="judge", daemon=True).start()
        return True

    def _judged(self, decision: Decision) -> None:
        """Go on with the message that was judged, and with what came behind it."""
        self._judging = False
        if self._session.over:
            return
        self._decision = decision
        data = bytes(self._held)
        self._held = bytearray()
        self.data_received(data)
        self._read_on()

    def _decide(self, text: bytes) -> Decision:
        decision = self._decision
        if decision is None:
            return self._session.statements.decide(text, self._session.cluster.rules)
        self._decision = None
        return decision

    def _query(self, payload: bytes) -> bytes | None:
        found = frames.texts(payload, 1)
        if found is None:
            self._sent_query(_NO_TAGS)
            return None
        decision = self._decide(found[0][0])
        self._sent_query(decision.tags)
        return None if decision.text is None else frames.message(QUERY, decision.text + b"\0")

    def _sent_query(self, tags: Mapping[int, bytes]) -> None:
        session = self._session
        if tags or session.open_tags:
            # Executes without a Sync before the query are answered in the same group.
            tags = session.open_tags | {self.executes + place: tag for place, tag in tags.items()}
            session.groups.append(Group(tags, is_query=True))
            session.open_tags = {}
        else:
            session.groups.append(_QUERY)
        self.executes = 0

    def _parse(self, payload: bytes) -> bytes | None:
        found = frames.texts(payload, 2)
        if found is None:
            return None
        (name, text), rest = found
        decision = self._decide(text)
        self._tagged_statements.pop(name, None)
        if not decision.single:
            # PostgreSQL has its own answer to several statements in one Parse.
            return None
        if decision.tags:
            self._tagging = True
            self._tagged_statements[name] = decision.tags[0]
        if decision.text is None:
            return None
        return frames.message(PARSE, name + b"\0" + decision.text + b"\0" + payload[rest:])

    def _note_bind(self, payload: bytes) -> None:
        found = frames.texts(payload, 2)
        if found is not None:
            portal, statement = found[0]
            tag = self._tagged_statements.get(statement)
            if tag is None:
                self._tagged_portals.pop(portal, None)
            else:
                self._tagged_portals[portal] = tag

    def _note_execute(self, payload: bytes) -> None:
        tag = self._tagged_portals.get(payload[:-5])
        if tag is not None:
            self._session.open_tags[self.executes] = tag

    def leave(self, farewell: bytes) -> None:
        """Close the client's connection, after this message if one can be sent between its frames."""
        if not self.transport.is_closing():
            if farewell and self._session.backend.between_frames:
                self.transport.write(farewell)
            self.transport.close()

    def pause_writing(self) -> None:
        """The client reads too slowly: PostgreSQL waits."""
        self._session.backend.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._session.backend.resume()

    def pause(self) -> None:
        """Stop reading."""
        self._paused = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._read_on()

    def _read_on(self) -> None:
        if not (self._paused or self._judging or self.transport.is_closing()):
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone."""
        self.lost = True
        self._held = bytearray()
        self._session.client_gone()


#: Messages that may have to be replaced, or that change what comes next.
_LOOKED_AT: Final = frozenset(
    {QUERY, PARSE, frames.CLOSE, frames.FUNCTION_CALL, frames.TERMINATE, frames.COPY_DONE, frames.COPY_FAIL}
)
