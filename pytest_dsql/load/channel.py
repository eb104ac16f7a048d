"""Messages between the controller and a worker process: pickles with their length, over a socket in an event loop."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.load.loop import READ, WRITE

if TYPE_CHECKING:
    from pytest_dsql.load.loop import Loop

_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 18


@final
class Channel:
    """One end of the conversation. Both ends are this package, started by the same user on the same machine.

    Sending never blocks: what the socket does not take at once leaves with the loop.
    """

    def __init__(
        self, loop: Loop, sock: socket.socket, *, received: Callable[[Any], None], closed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._received = received
        self._closed = closed
        self._incoming = bytearray()
        self._outgoing: list[memoryview] = []
        self._open = True
        self._writing = False
        sock.setblocking(False)
        loop.add(sock.fileno(), READ, self._on_ready)

    def drain(self) -> None:
        """Wait until everything sent has left, or the other side is gone."""
        self._sock.setblocking(True)
        while self._open and self._outgoing:
            self._write()

    def send(self, message: Any) -> None:
        """Send a message that pickles; lost when the other side is gone."""
        self.send_pickled(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))

    def send_pickled(self, pickled: bytes) -> None:
        """Send a message that was pickled already."""
        if not self._open:
            return
        self._outgoing.append(memoryview(_LENGTH.pack(len(pickled)) + pickled))
        self._write()

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            self._outgoing.clear()
            self._loop.remove(self._sock.fileno())
            self._sock.close()

    def _write(self) -> None:
        outgoing = self._outgoing
        try:
            while outgoing:
                sent = self._sock.send(outgoing[0])
                if sent < len(outgoing[0]):
                    outgoing[0] = outgoing[0][sent:]
                else:
                    del outgoing[0]
        except BlockingIOError:
            pass
        except OSError:  # the other side is gone: reading will tell
            outgoing.clear()
        if bool(outgoing) != self._writing:
            self._writing = bool(outgoing)
            self._loop.change(self._sock.fileno(), READ | WRITE if self._writing else READ, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if not events & READ or not self._open:
            return
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._closed()
            return
        incoming = self._incoming
        incoming += data
        while self._open and len(incoming) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(incoming)
            end = _LENGTH.size + length
            if len(incoming) < end:
                break
            message = pickle.loads(memoryview(incoming)[_LENGTH.size : end])  # noqa: S301 - our own process
            del incoming[:end]
            self._received(message)
