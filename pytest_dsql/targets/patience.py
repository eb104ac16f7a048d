"""A bound for what one connection may take: the only one there is (DSQL refuses statement_timeout and lock_timeout)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.errors import DsqlError


@contextmanager
def patience(connection: psycopg.Connection[Any], seconds: float, instead: DsqlError) -> Iterator[None]:
    """Cut the connection when the block takes longer; raise `instead` for the psycopg.OperationalError that follows."""
    import psycopg

    cut = threading.Event()

    def shut() -> None:
        cut.set()
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg.OperationalError:
        if not cut.is_set():
            raise
        raise instead from None
    finally:
        timer.cancel()
