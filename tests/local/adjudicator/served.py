"""The embedded engine as a target of interleavings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import psycopg

from tests.local.adjudicator.model.execution import Result
from tests.local.adjudicator.model.schema import INITIAL, TABLES
from tests.local.adjudicator.model.statements import Batch, Delete, Insert, Read, Rollback, Statement, Where
from tests.local.adjudicator.targets import Answer
from tests.local.adjudicator.wire import Wire


@final
class Served:
    """A cluster behind the wire. Its sessions stay open from one example to the next."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        with connect() as connection:
            for table in TABLES:
                connection.execute(table.create())
        self._probe = Wire(connect())
        self._wires: dict[str, Wire] = {}

    def close(self) -> None:
        """Close every connection."""
        for wire in (self._probe, *self._wires.values()):
            wire.close()

    def reset(self, sessions: Sequence[str]) -> None:
        for name, wire in self._wires.items():
            answer = wire.run(Rollback(), "simple")
            assert answer.status == "I", name
        for name in sessions:
            if name not in self._wires:
                self._wires[name] = Wire(self._connect())
        statements: list[Statement] = [Delete(table.name, Where()) for table in reversed(TABLES)]
        statements += [Insert(t.name, _integers(INITIAL[t.name])) for t in TABLES if t.name in INITIAL]
        answer = self._probe.run(Batch(tuple(statements), pipelined=True), "simple")
        assert len(answer.results) == len(statements), answer
        assert all(isinstance(result, Result) for result in answer.results), answer

    def run(self, session: str, statement: Statement | Batch, protocol: str) -> Answer:
        return self._wires[session].run(statement, protocol)

    def disconnect(self, session: str) -> None:
        self._wires[session].close()
        self._wires[session] = Wire(self._connect())

    def contents(self, table: str) -> list[tuple[str | None, ...]]:
        (result,) = self._probe.run(Read(table), "simple").results
        assert isinstance(result, Result), result
        return [tuple(_text(value) for value in row) for row in result.rows or ()]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _integers(rows: Sequence[Sequence[object]]) -> tuple[tuple[int | None, ...], ...]:
    return tuple(tuple(_whole(row)) for row in rows)


def _whole(row: Sequence[object]) -> Iterator[int | None]:
    for value in row:
        assert value is None or isinstance(value, int)
        yield value
