"""COPY FROM STDIN: the client's data goes on as it comes, and what is no data ends the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, Group
from pytest_dsql.local.gateway.run import Run

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

_OUT_OF_STEP: Final = frames.error("FATAL", "08P01", "terminating connection because protocol synchronization was lost")

#: The SQLSTATE of a COPY whose client has given it up: query_canceled.
_COPY_FAILED: Final = b"57014"


class SessionEnded(Exception):
    """The session is over."""


@final
class Copying:
    """One session's COPY FROM STDIN, run by its driver."""

    __slots__ = ("_forgets", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forgets = False  #: PostgreSQL has forgotten the unnamed statement, which the client may run again

    async def run(self, run: Run, sql: bytes) -> Group:
        """Run COPY FROM STDIN. Syncs and Flushes that come during it get no answer, as in PostgreSQL."""
        session = self._session
        self._forgets = not run.by_query
        backend = session.backend
        reply = await backend.ask(frames.query(sql), until_copy=True)
        if reply.error is not None:
            return reply
        if run.copied is not None:
            # It is run another way: the client has said all it had to say.
            data = frames.message(frames.COPY_DATA, run.copied) + frames.message(frames.COPY_DONE, b"")
            return await backend.ask(data)
        session.send(b"".join(reply.collected))
        copied = bytearray()
        # PostgreSQL says what is wrong with the data as soon as it sees it.
        answer = backend.begin(b"")
        assert answer.asked is not None
        while not answer.asked.done():
            found = session.frontend.take()
            if found is None:
                await asyncio.wait((session.frontend.more(), answer.asked), return_when=asyncio.FIRST_COMPLETED)
                continue
            kind, payload = found
            if kind == frames.COPY_DATA:
                copied += payload
                backend.transport.write(frames.message(kind, payload))
            elif kind in (frames.COPY_DONE, frames.COPY_FAIL):
                if kind == frames.COPY_DONE:
                    run.copied = bytes(copied)
                backend.transport.write(frames.message(kind, payload))
                break
            elif kind not in (frames.SYNC, frames.FLUSH):
                await self._break(answer, kind, payload)
                break
        await answer.asked
        return answer

    async def _break(self, answer: Group, kind: int, payload: bytes) -> None:
        """End the session because of a message that can't be part of COPY FROM STDIN, as PostgreSQL does.

        PostgreSQL isn't sent the message: it may have given up the COPY already, for what is wrong with the data, and
        would then take it for what it says, unjudged. CopyFail does nothing then.
        """
        self._session.backend.transport.write(frames.message(frames.COPY_FAIL, b"\0"))
        assert answer.asked is not None
        await answer.asked
        if answer.error is None or answer.error.get("C") != _COPY_FAILED:
            self._session.frontend.put_back(kind, payload)
            return
        said = f"unexpected message type 0x{kind:02X} during COPY from stdin"
        self._session.send(frames.report(frames.ERROR_RESPONSE, answer.error | {"C": b"08P01", "M": said.encode()}))
        self._session.broken(_OUT_OF_STEP)
        raise SessionEnded

    async def remember(self) -> None:
        """Prepare the unnamed statement again after a COPY: that is run by a Query message, which takes it away."""
        session = self._session
        unnamed = session.prepared_statements().get(b"")
        if self._forgets and unnamed is not None and session.status != FAILED:
            await session.backend.ask(unnamed + SYNC_MESSAGE)
        self._forgets = False
