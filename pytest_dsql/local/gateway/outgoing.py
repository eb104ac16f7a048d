"""What goes to the client, held back for as long as a statement's answer shall take."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

#: A timer of the loop is so exact that waiting again for less would be in vain. Seconds.
_GRAIN_S: Final = 0.0005
#: Bytes that may be held back before PostgreSQL is paused.
_BACKLOG: Final = 1024 * 1024


@final
class Outgoing:
    """The way to one client. Nothing overtakes: what comes while something is held back waits behind it.

    `crowded` is called with True when too much is held back, and with False when that has gone.
    """

    __slots__ = ("_crowded", "_due", "_held", "_held_bytes", "_is_crowded", "_timer", "_transport", "silent")

    def __init__(self, transport: asyncio.Transport, crowded: Callable[[bool], object]) -> None:
        self._transport = transport
        self._crowded = crowded
        self._held: deque[tuple[float, bytes]] = deque()  #: when it may go, on time.monotonic, and what
        self._held_bytes = 0
        self._is_crowded = False
        self._due = 0.0  #: when the answer that comes next may go
        self._timer: asyncio.TimerHandle | None = None
        self.silent = False  #: nothing goes any more

    def send(self, data: bytes) -> None:
        """Send: now, or when it is due and what is before it has gone."""
        if self._due == 0.0 and not self._held:
            if not self.silent:
                self._transport.write(data)
        else:
            self._send_later(data)

    def _send_later(self, data: bytes) -> None:
        if self.silent:
            return
        if not self._held and self._due - time.monotonic() < _GRAIN_S:
            self._due = 0.0
            self._transport.write(data)
            return
        self._held.append((self._due, data))
        self._held_bytes += len(data)
        if self._held_bytes > _BACKLOG and not self._is_crowded:
            self._is_crowded = True
            self._crowded(True)
        if self._timer is None:
            self._wait()

    def hold_until(self, due: float) -> None:
        """Let what is sent from now on go no earlier than `due`, on time.monotonic."""
        self._due = max(self._due, due)

    def _wait(self) -> None:
        wait_s = max(self._held[0][0] - time.monotonic(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._release)

    def _release(self) -> None:
        """Send what is due."""
        self._timer = None
        until = time.monotonic() + _GRAIN_S
        going = []
        while self._held and self._held[0][0] < until:
            data = self._held.popleft()[1]
            self._held_bytes -= len(data)
            going.append(data)
        if self._held:
            self._wait()
        self._go(going)

    def flush(self) -> None:
        """Send what is held back."""
        going = [data for _, data in self._held]
        self._forget()
        self._go(going)

    def drop(self) -> None:
        """Forget what is held back, and send nothing any more."""
        self.silent = True
        self._forget()

    def _forget(self) -> None:
        self._due = 0.0
        self._held.clear()
        self._held_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go(self, going: list[bytes]) -> None:
        # Before writing: that may say that the client is too slow, which then holds.
        if self._is_crowded and self._held_bytes <= _BACKLOG:
            self._is_crowded = False
            self._crowded(False)
        if going and not self._transport.is_closing():
            self._transport.write(b"".join(going))
