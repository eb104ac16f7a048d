"""What becomes of a client's texts: decided at once, or beside the loop where they are long."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.statements import Decision

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: Messages whose text is judged beside the loop, so that other sessions are served meanwhile: from this many bytes on
#: judging takes longer than handing it over. A megabyte of INSERTs takes seconds.
LONG_MESSAGE: Final = 65_536


@final
class Judging:
    """One session's texts. `done` is called when a long one was judged, and its message may be looked at again."""

    __slots__ = ("_decision", "_done", "_session", "under_way")

    def __init__(self, session: Session, done: Callable[[], object]) -> None:
        self.under_way = False  #: a thread judges the first message that the frontend holds
        self._session = session
        self._done = done
        self._decision: Decision | None = None  #: on the long message that is looked at next

    def decide(self, text: bytes) -> Decision:
        """Decide what becomes of a text."""
        session = self._session
        decision, self._decision = self._decision, None
        if decision is None:
            decision = session.statements.decide(text, session.cluster.rules)
        if decision.leaves:
            session.loan.left(decision.leaves)
        return decision

    def hand_over(self, payload: bytes, texts: int) -> bool:
        """Have a long text, the last of so many in a message, judged by a thread; tell whether to wait for that."""
        if self._decision is not None:
            return False
        found = frames.texts(payload, texts)
        if found is None:
            return False
        text = found[0][-1]
        session = self._session
        loop = asyncio.get_running_loop()

        def judge() -> None:
            decision = session.statements.decide_long(text, session.cluster.rules)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway ended meanwhile
                loop.call_soon_threadsafe(self._judged, decision)

        self.under_way = True
        # A daemon: the end of the process doesn't wait for what nobody will be told.
        threading.Thread(target=judge, name="judge", daemon=True).start()
        return True

    def _judged(self, decision: Decision) -> None:
        self.under_way = False
        if not self._session.over:
            self._decision = decision
            self._done()
