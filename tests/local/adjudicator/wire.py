"""A connection that sends statements in each of the protocol's ways and never waits longer than it was told."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any, Final, final

import psycopg
from psycopg import pq

from tests.local.adjudicator.model.execution import Result
from tests.local.adjudicator.model.schema import Value
from tests.local.adjudicator.model.sessions import Failure
from tests.local.adjudicator.model.statements import Batch, Statement, Text
from tests.local.adjudicator.targets import Answer

_INT4: Final = 23
_STATUS: Final[dict[int, str]] = {
    pq.TransactionStatus.IDLE: "I",
    pq.TransactionStatus.INTRANS: "T",
    pq.TransactionStatus.INERROR: "E",
}


class Blocked(AssertionError):
    """No answer came in time. On DSQL nobody waits for anybody."""


@final
class Wire:
    """One connection. `patience_s` is how long a statement may take before Blocked is raised."""

    def __init__(self, connection: psycopg.Connection[Any], patience_s: float = 10.0) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._patience_s = patience_s
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}

    def close(self) -> None:
        """Break the connection without a word."""
        self._connection.close()

    def run(self, statement: Statement | Batch, protocol: str) -> Answer:
        """Send a statement (batches know how themselves) and wait for its answer."""
        began = time.monotonic()
        deadline = began + self._patience_s
        if isinstance(statement, Batch):
            results = self._pipeline(statement, deadline) if statement.pipelined else self._string(statement, deadline)
        else:
            results = self._single(statement, protocol, deadline)
        seconds = time.monotonic() - began
        return Answer(tuple(results), _STATUS[self._pgconn.transaction_status], seconds)

    def _single(self, statement: Statement, protocol: str, deadline: float) -> list[Result | Failure]:
        text = Text(parameters=protocol != "simple")
        sql = statement.sql(text)
        if protocol == "simple":
            self._pgconn.send_query(sql.encode())
        elif protocol == "extended":
            self._pgconn.send_query_params(sql.encode(), _texts(text.values), [_INT4] * len(text.values))
        else:
            name = self._prepared.get(sql)
            if name is None:
                name = f"p{len(self._prepared)}".encode()
                self._pgconn.send_prepare(name, sql.encode(), [_INT4] * len(text.values))
                prepared = self._results(deadline)
                if any(isinstance(result, Failure) for result in prepared):
                    return prepared
                self._prepared[sql] = name
            self._pgconn.send_query_prepared(name, _texts(text.values))
        return self._results(deadline)

    def _string(self, batch: Batch, deadline: float) -> list[Result | Failure]:
        texts = [statement.sql(Text(parameters=False)) for statement in batch.statements]
        self._pgconn.send_query("; ".join(texts).encode())
        return self._results(deadline)

    def _pipeline(self, batch: Batch, deadline: float) -> list[Result | Failure]:
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        for statement in batch.statements:
            text = Text(parameters=True)
            sql = statement.sql(text)
            pgconn.send_query_params(sql.encode(), _texts(text.values), [_INT4] * len(text.values))
        pgconn.pipeline_sync()
        results: list[Result | Failure] = []
        while True:
            result = self._next(deadline)
            if result is None or result.status == pq.ExecStatus.PIPELINE_ABORTED:
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
            results.append(_read(result))
        pgconn.exit_pipeline_mode()
        return results

    def _results(self, deadline: float) -> list[Result | Failure]:
        results = []
        while (result := self._next(deadline)) is not None:
            results.append(_read(result))
        return results

    def _next(self, deadline: float) -> pq.abc.PGresult | None:
        self._pgconn.flush()
        while self._pgconn.is_busy():
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0 or not self._poll.poll(left_ms):
                raise Blocked(f"no answer within {self._patience_s:.1f} s")
            self._pgconn.consume_input()
        return self._pgconn.get_result()


def _texts(values: Sequence[Value]) -> list[bytes | None]:
    return [None if value is None else str(value).encode() for value in values]


def _read(result: pq.abc.PGresult) -> Result | Failure:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        message = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message()
        return Failure(
            _field(result, pq.DiagnosticField.SQLSTATE) or "",
            frozenset({message}),
            _field(result, pq.DiagnosticField.MESSAGE_DETAIL),
        )
    tag = (result.command_status or b"").decode()
    if result.status != pq.ExecStatus.TUPLES_OK:
        return Result(tag)
    rows = []
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(result.nfields))
        rows.append(tuple(None if value is None else bytes(value).decode() for value in values))
    return Result(tag, tuple(rows))


def _field(result: pq.abc.PGresult, field: pq.DiagnosticField) -> str | None:
    value = result.error_field(field)
    return None if value is None else value.decode()
