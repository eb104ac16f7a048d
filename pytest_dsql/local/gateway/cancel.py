"""Ends what a backend is doing for a client that is no longer there."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.startup import CANCEL_REQUEST

_CODE: Final = CANCEL_REQUEST.to_bytes(4, "big")


def cancel(socket_path: str, key: bytes) -> None:
    """Send a CancelRequest with PostgreSQL's own key. Doesn't block: a socket that can't take it is left alone."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as postgres:
        postgres.setblocking(False)
        postgres.connect(socket_path)
        postgres.send(frames.packet(_CODE + key))
