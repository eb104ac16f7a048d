"""A connection in the loop's phases: what breaks in sending, and what is closed before it was sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import pytest
from psycopg import OperationalError

from pytest_dsql.load.link import Asking, Link
from pytest_dsql.load.loop import Loop
from pytest_dsql.load.statements import Fault, new_converter


class BreaksInSending:
    """As much of a libpq connection as sending needs; it can't be made to break in sending at will."""

    nonblocking = 0
    status = 0
    finished = False

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock.fileno()
        self.asked = 0

    def send_query(self, _command: bytes) -> None:
        self.asked += 1
        raise OperationalError("broken pipe")

    def finish(self) -> None:
        self.finished = True


class Asker(Link):
    """Asks once and keeps the answer."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, new_converter(), preparing=True)
        self.answer: Any = None
        self.life: Asking = self._ask()
        self._send = self.life.send

    def begin(self) -> None:
        self._idle = False
        self._opening = True
        self._resume(None)

    def _ask(self) -> Asking:
        assert self._pgconn is not None
        self._post(self._pgconn.send_query, b"SELECT 1")
        self.answer = yield

    def _finished(self) -> None:
        self._idle = True


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pgconn() -> Iterator[Any]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield BreaksInSending(ours)


def run_until_sent(loop: Loop) -> None:
    loop.at(perf_counter_ns(), loop.stop)
    loop.run()


def test_a_connection_that_breaks_in_sending_answers_with_a_fault(loop: Loop, pgconn: Any) -> None:
    asker = Asker(loop)
    asker.adopt(pgconn)
    loop.at(0, asker.begin)
    run_until_sent(loop)
    assert isinstance(asker.answer, Fault)
    assert asker.answer.lost
    assert asker.pgconn is None
    assert pgconn.finished
    assert asker.begun == 1


def test_nothing_is_sent_on_a_connection_that_was_closed_since(loop: Loop, pgconn: Any) -> None:
    asker = Asker(loop)
    asker.adopt(pgconn)
    loop.at(0, asker.begin)
    loop.at(0, asker.disconnect)
    run_until_sent(loop)
    assert pgconn.asked == 0
    assert asker.begun == 0  # a request begins when its first statement is sent
