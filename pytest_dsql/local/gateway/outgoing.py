"""What goes to the client, held back for as long as a statement's answer shall take."""

from __future__ import annotations

import asyncio
from typing import final


@final
class Outgoing:
    """The way to one client. Nothing overtakes: what comes while something is held back waits behind it."""

    __slots__ = ("_held", "_release", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._release = 0.0  #: the loop's time
        self._timer: asyncio.TimerHandle | None = None

    def send(self, data: bytes) -> None:
        """Send, now or when what is held back goes."""
        if self._timer is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def hold(self, seconds: float) -> None:
        """Hold back what comes from now on for so long, added to what is held back already."""
        loop = asyncio.get_running_loop()
        self._release = max(self._release, loop.time()) + seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._release, self.flush)

    def flush(self) -> None:
        """Send what is held back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held and not self._transport.is_closing():
            self._transport.write(b"".join(self._held))
        self._held.clear()
