"""What comes from the client: one statement at a time goes on, judged; what needs more goes to the driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.admission import DRIVEN, admit
from pytest_dsql.local.gateway.driver import NO_CALLS
from pytest_dsql.local.gateway.frames import BIND, CLOSE, EXECUTE, HEADER, HEADER_SIZE, PARSE, QUERY, SYNC, SYNC_MESSAGE
from pytest_dsql.local.gateway.group import IDLE, Group
from pytest_dsql.local.gateway.judging import LONG_MESSAGE, Judging
from pytest_dsql.local.gateway.names import Names
from pytest_dsql.local.gateway.run import Run

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: Bytes that may wait for the statement before them; then the client's connection is not read.
_BACKLOG: Final = 256 * 1024

_BAD_LENGTH: Final = frames.error("FATAL", "08P01", "invalid message length")

_REFUSED_CALL: Final = frames.query(disguise.failing_statement(NO_CALLS).encode())


#: What may mean something else in the sandbox.
_EXTENDED: Final = frozenset({PARSE, BIND, frames.DESCRIBE, EXECUTE})


@final
class Frontend(asyncio.BufferedProtocol):
    """The client's side of a session.

    It reads into a buffer that is there: for a protocol without one, uvloop's TLS allocates 256 KiB for each chunk,
    which costs three system calls and a page fault.
    """

    __slots__ = (
        "_held",
        "_needed",
        "_paused",
        "_session",
        "_stopped",
        "_waiter",
        "buffer",
        "judging",
        "loose",
        "lost",
        "names",
        "transport",
        "unsynced",
    )

    def __init__(self, session: Session) -> None:
        self.transport: asyncio.Transport
        self.buffer: memoryview
        self.lost = False
        self.judging = Judging(session, self._judged)
        self.names = Names(self.judging.decide)
        self.unsynced = False  #: something was sent that no Sync has ended
        self.loose = b""  #: the messages of which the driver has to see that they are answered
        self._session = session
        self._held = bytearray()  #: what waits: for its rest, for the statement before it, or for the driver
        self._needed = 0  #: how much there has to be before it is looked at
        self._paused = False  #: PostgreSQL reads too slowly
        self._stopped = False  #: the client's connection is not read
        self._waiter: asyncio.Future[None] | None = None  #: the driver, waiting for more

    @property
    def unfinished(self) -> bool:
        """Whether something of the client's waits here."""
        return bool(self._held)

    @property
    def at_ease(self) -> bool:
        """Whether no name waits for its statement, and no text for its judgement."""
        return not self.judging.under_way and not self.names.parsing

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Give the place for what is read next."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        session = self._session
        data = bytes(self.buffer[:nbytes])
        if session.express.clear and not session.over:
            session.loan.touched = True
            if session.express.takes(data):
                return
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Take a chunk."""
        session = self._session
        if session.over:
            return
        session.loan.touched = True
        session.express.clear = False
        if session.group is not None or session.driver.working or self.judging.under_way:
            self._held += data
            if self._waiter is not None and len(self._held) >= self._needed:
                self.wake()
            elif len(self._held) > _BACKLOG and self._waiter is None:
                self._pause_reading()
            return
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held = bytearray()
        self._scan(data)

    def go_on(self) -> None:
        """Look at what was held: the statement before it is answered."""
        if self.names.portals and self._session.status == IDLE:
            self.names.portals.clear()
        if self._held and not self._session.over:
            self._session.express.clear = False
            data = bytes(self._held)
            self._held = bytearray()
            self._needed = 0
            self._scan(data)
        elif not self._session.over:
            self._session.express.look()
        self._read_on()

    def _scan(self, data: bytes) -> None:
        """Walk the frames of a chunk up to the end of the first group, and pass that on."""
        session = self._session
        # A longer message closes the connection without a word, as seen on clusters in October 2026; the AWS user guide
        # ("Troubleshooting") has an error for it.
        longest = session.cluster.limits.message_bytes + 4
        sandboxed = session.contender.sandboxed
        position = 0
        end = len(data)
        pieces: list[bytes] = []
        passed = 0  # up to here the chunk is in `pieces`
        group: Group | None = None
        while end - position >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(data, position)
            after = position + 1 + length
            if not 4 <= length <= longest:
                session.broken(_BAD_LENGTH if length < 4 else b"")
                return
            if after > end:
                self._needed = 1 + length
                break
            replacement: bytes | None = None
            if sandboxed and kind in _EXTENDED:
                self._forward(data, pieces, passed, position, position)
                session.driver.start(session.driver.pipeline(None))
                return
            if kind == BIND:
                self.unsynced = True
                self.names.bind(data[position + HEADER_SIZE : after])
            elif kind == EXECUTE:
                self.unsynced = True
                if after + HEADER_SIZE > end:
                    # What comes next decides.
                    self._needed = after - position + HEADER_SIZE
                    break
                name = data[position + HEADER_SIZE : after - 5]
                portal = self.names.portals.get(name)
                group = Group(None if portal is None else portal.prepared.plan)
                group.run = run = Run.of_portal(name, portal, data[position:after])
                if not data.startswith(SYNC_MESSAGE, after):
                    self._forward(data, pieces, passed, position, after)
                    session.driver.start(session.driver.pipeline(run))
                    return
                if portal is not None:
                    replacement = admit(session, portal.prepared.plan, run, group)
                    if replacement is DRIVEN:
                        self._forward(data, pieces, passed, position, after)
                        session.driver.start(session.driver.pipeline(run))
                        return
                    portal.executed = True
                if replacement is not None:
                    pieces += (data[passed:position], replacement)
                    passed = after
                position = after + HEADER_SIZE
                break
            elif kind == SYNC:
                session.hold(None)
                group = Group()
                position = after
                break
            elif kind in (QUERY, frames.FUNCTION_CALL) and self.unsynced:
                # PostgreSQL ignores it if one of the messages before it has failed.
                self._forward(data, pieces, passed, position, position)
                session.driver.start(session.driver.pipeline(None))
                return
            elif kind == QUERY:
                if length >= LONG_MESSAGE and self._waits_for(data[position + HEADER_SIZE : after], 1):
                    break
                group, asked = self._query(data[position + HEADER_SIZE : after])
                if asked is None:
                    # The text has no end: PostgreSQL has words for that.
                    position = after
                    break
                group.run = asked
                replacement = admit(session, asked.plans[0], asked, group) if len(asked.plans) == 1 else DRIVEN
                if replacement is DRIVEN:
                    self._forward(data, pieces, passed, position, after)
                    session.driver.start(session.driver.query(asked))
                    return
                if replacement is None and asked.plans[0].changed:
                    replacement = frames.query(asked.plans[0].sent)
                if replacement is not None:
                    pieces += (data[passed:position], replacement)
                    passed = after
                position = after
                break
            elif kind == PARSE:
                if length >= LONG_MESSAGE and self._waits_for(data[position + HEADER_SIZE : after], 2):
                    break
                self.unsynced = True
                replacement = self.names.parse(data[position + HEADER_SIZE : after])
            elif kind in (frames.DESCRIBE, frames.FLUSH):
                # After an error in a Flush, too, PostgreSQL ignores everything up to the next Sync.
                self.unsynced = True
            elif kind == CLOSE:
                self.unsynced = True
                self.names.close(data[position + HEADER_SIZE : after])
            elif kind == frames.FUNCTION_CALL:
                group = Group()
                pieces += (data[passed:position], _REFUSED_CALL)
                passed = position = after
                break
            elif kind == frames.TERMINATE:
                # PostgreSQL isn't told: its connection may serve another session.
                session.depart()
                return
            if replacement is not None:
                pieces += (data[passed:position], replacement)
                passed = after
            position = after
        if session.over:
            return
        if position < end:
            self._held += data[position:]
            if len(self._held) > _BACKLOG and group is not None:
                self._pause_reading()
            if end - position < HEADER_SIZE:
                self._needed = HEADER_SIZE
        if position:
            self.unsynced = group is None
        if pieces:
            pieces.append(data[passed:position])
            sent = b"".join(pieces)
        else:
            sent = data if position == end else data[:position]
        if group is not None:
            group.sent = sent
            session.group = group
        if sent:
            session.backend.transport.write(sent)
            if group is not None and session.vigil is not None:
                session.vigil.stay(session.vigil.answer)

    def _forward(self, data: bytes, pieces: list[bytes], passed: int, position: int, after: int) -> None:
        """Pass on what comes before a message that the driver takes, and hold what comes behind it."""
        self.unsynced = False  # the driver begins with a Sync
        pieces.append(data[passed:position])
        if before := b"".join(pieces):
            self.loose = before
            self._session.backend.transport.write(before)
        self._held += data[after:]

    def _query(self, payload: bytes) -> tuple[Group, Run | None]:
        found = frames.texts(payload, 1)
        if found is None:
            return Group(), None
        decision = self.judging.decide(found[0][0])
        return Group(decision.plans[0]), Run.of_query(decision.plans)

    def _waits_for(self, payload: bytes, texts: int) -> bool:
        """Have the long text of a message judged by a thread; tell whether the message has to wait for that."""
        if not self.judging.hand_over(payload, texts):
            return False
        self._pause_reading()
        return True

    def _judged(self) -> None:
        """Go on with the message that was judged, and with what came behind it."""
        if self._session.group is None and not self._session.driver.working:
            self.go_on()

    def take(self) -> tuple[int, bytes] | None:
        """The next message, for the driver: its kind and its payload; None when it hasn't come yet."""
        held = self._held
        self._needed = HEADER_SIZE
        if len(held) < HEADER_SIZE:
            return None
        kind, length = HEADER.unpack_from(held)
        if not 4 <= length <= self._session.cluster.limits.message_bytes + 4:
            self._session.broken(_BAD_LENGTH if length < 4 else b"")
            raise asyncio.CancelledError
        if len(held) <= length:
            self._needed = 1 + length
            return None
        payload = bytes(held[HEADER_SIZE : 1 + length])
        del held[: 1 + length]
        return kind, payload

    def put_back(self, kind: int, payload: bytes) -> None:
        """Have a message that was taken come next again."""
        self._held[:0] = frames.message(kind, payload)

    def more(self) -> asyncio.Future[None]:
        """What is done when the message that `take` didn't find has come."""
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
            self._read_on()
        return self._waiter

    def wake(self) -> None:
        """Have the driver look up, though nothing has come."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None

    def next_is_sync(self) -> bool:
        """Whether the next message is a Sync that has come already."""
        return self._held.startswith(SYNC_MESSAGE)

    def leave(self, farewell: bytes) -> None:
        """Close the client's connection, after this message if one can be sent between its frames."""
        if not self.transport.is_closing():
            self._session.outgoing.flush()
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
        """Stop reading: PostgreSQL reads too slowly."""
        self._paused = True
        self._pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._read_on()

    def _pause_reading(self) -> None:
        if not self.transport.is_closing():
            self._stopped = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if not self._stopped:
            return
        crowded = len(self._held) > max(_BACKLOG, self._needed) and self._waiter is None
        if not (self._paused or self.judging.under_way or crowded or self.transport.is_closing()):
            self._stopped = False
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone."""
        self.lost = True
        self._held = bytearray()
        self._session.client_gone()
