"""One connection of a case: libpq without psycopg's own ideas, so that exactly the server's answers are seen."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

import psycopg
from psycopg import pq

from pytest_dsql.masking import mask
from tests.local.conformance.answers import Answer, answer_of, failure

#: How the states of a transaction are called in cases.
_STATES: Final = {
    pq.TransactionStatus.IDLE: "idle",
    pq.TransactionStatus.ACTIVE: "active",
    pq.TransactionStatus.INTRANS: "in_transaction",
    pq.TransactionStatus.INERROR: "failed",
    pq.TransactionStatus.UNKNOWN: "unknown",
}
_CHUNK: Final = 65_536
#: Results that may still come after a connection is found closed.
_LEFT: Final = 20


class Blocked(Exception):
    """No answer came in time."""


class Closed(Exception):
    """The connection was refused or closed; `answer` is what the server said last, if anything."""

    def __init__(self, message: str, answer: Answer | None = None) -> None:
        super().__init__(mask(message))
        self.answer = answer


@contextlib.contextmanager
def _closing() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise Closed(str(error).strip()) from None


@final
class Wire:
    """A connection whose statements are answered within `timeout_s`, or raise Blocked or Closed."""

    def __init__(self, conninfo: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._connection = pq.PGconn.connect(f"{conninfo} connect_timeout={max(2, round(timeout_s))}".encode())
        if self._connection.status != pq.ConnStatus.OK:
            said = self._connection.error_message.decode("utf-8", "replace").strip()
            self._connection.finish()
            raise Closed(f"cannot connect: {said}")
        self._connection.nonblocking = 1
        self._connection.notice_handler = lambda _result: None

    @property
    def transaction(self) -> str:
        """The state of the transaction: `idle`, `in_transaction`, `failed`."""
        return _STATES[pq.TransactionStatus(self._connection.transaction_status)]

    def close(self) -> None:
        """Close the connection without a word."""
        self._connection.finish()

    def run(
        self,
        sql: str,
        params: Sequence[str | None] | None = None,
        *,
        extended: bool = False,
        copy_in: str | None = None,
        timeout_s: float | None = None,
    ) -> list[Answer]:
        """Run one text and return all its results."""
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        with _closing():
            if extended or params is not None:
                self._connection.send_query_params(sql.encode(), _encoded(params))
            else:
                self._connection.send_query(sql.encode())
        return self._collected(deadline, copy_in)

    def prepare(self, name: str, sql: str) -> list[Answer]:
        """Prepare a statement under a name."""
        deadline = time.monotonic() + self._timeout_s
        with _closing():
            self._connection.send_prepare(name.encode(), sql.encode())
        return self._collected(deadline, None)

    def execute(self, name: str, params: Sequence[str | None] | None) -> list[Answer]:
        """Execute a prepared statement."""
        deadline = time.monotonic() + self._timeout_s
        with _closing():
            self._connection.send_query_prepared(name.encode(), _encoded(params))
        return self._collected(deadline, None)

    def pipeline(self, items: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Send all items before reading an answer, with a Sync where an item says so and at the end."""
        deadline = time.monotonic() + self._timeout_s
        connection = self._connection
        items = [*items] if items[-1].get("sync") else [*items, {"sync": True}]
        connection.enter_pipeline_mode()
        try:
            with _closing():
                for item in items:
                    if item.get("sync"):
                        connection.pipeline_sync()
                    else:
                        connection.send_query_params(item["sql"].encode(), _encoded(item.get("params")))
            self._flush(deadline)
            return [answer for item in items for answer in self._pipelined(item, deadline)]
        finally:
            # It refuses while answers are outstanding: after a timeout, when the connection is given up anyway.
            with contextlib.suppress(psycopg.Error):
                connection.exit_pipeline_mode()

    def _pipelined(self, item: Mapping[str, Any], deadline: float) -> list[Answer]:
        if item.get("sync"):
            result = self._next(deadline) or self._next(deadline)
            if result is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
                return [failure("the protocol is out of step: no answer to Sync")]
            return []
        answer = Answer()
        while (result := self._next(deadline)) is not None:
            aborted = result.status == pq.ExecStatus.PIPELINE_ABORTED
            answer = Answer(aborted=True) if aborted else answer_of(result)
        return [answer]

    def _wait(self, deadline: float, *, write: bool) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Blocked
        descriptor = self._connection.socket
        readable, writable, _ = select.select([descriptor], [descriptor] if write else [], [], left)
        if not readable and not writable:
            raise Blocked
        if readable:
            with _closing():
                self._connection.consume_input()

    def _flush(self, deadline: float) -> None:
        while True:
            with _closing():
                left = self._connection.flush()
            if not left:
                return
            self._wait(deadline, write=True)

    def _next(self, deadline: float) -> pq.abc.PGresult | None:
        while self._connection.is_busy():
            self._wait(deadline, write=False)
        return self._connection.get_result()

    def _collected(self, deadline: float, copy_in: str | None) -> list[Answer]:
        answers: list[Answer] = []
        try:
            self._flush(deadline)
            while (result := self._next(deadline)) is not None:
                if result.status == pq.ExecStatus.COPY_IN:
                    self._send_copy(copy_in, deadline)
                elif result.status == pq.ExecStatus.COPY_OUT:
                    rows = self._receive_copy(deadline)
                    done = self._next(deadline)
                    answers.append(answer_of(done) if done is not None else Answer())
                    answers[-1].rows = rows
                else:
                    answers.append(answer_of(result))
                if self._connection.status == pq.ConnStatus.BAD:
                    break
        except Closed as closed:
            closed.answer = self._last_words() or closed.answer
            raise
        if self._connection.status == pq.ConnStatus.BAD:
            said = self._connection.error_message.decode("utf-8", "replace").strip()
            errors = [answer for answer in answers if answer.failed]
            raise Closed(said or "connection closed", errors[-1] if errors else None)
        return answers

    def _last_words(self) -> Answer | None:
        """The error that came just before the end of the connection."""
        found = None
        for _ in range(_LEFT):
            result = self._connection.get_result()
            if result is None:
                break
            answer = answer_of(result)
            found = answer if answer.sqlstate else found
        return found

    def _send_copy(self, data: str | None, deadline: float) -> None:
        with _closing():
            if data is None:
                self._connection.put_copy_end(b"the case has no data to copy")
            else:
                encoded = data.encode()
                for start in range(0, len(encoded), _CHUNK):
                    while not self._connection.put_copy_data(encoded[start : start + _CHUNK]):
                        self._wait(deadline, write=True)
                self._connection.put_copy_end()
        self._flush(deadline)

    def _receive_copy(self, deadline: float) -> list[list[str | None]]:
        rows: list[list[str | None]] = []
        while True:
            with _closing():
                length, data = self._connection.get_copy_data(1)
            if length > 0:
                rows.append([*bytes(data).decode("utf-8", "replace").rstrip("\n").split("\t")])
            elif length == 0:
                self._wait(deadline, write=False)
            else:
                return rows


def _encoded(params: Sequence[str | None] | None) -> list[bytes | None]:
    return [None if one is None else one.encode() for one in params or ()]
