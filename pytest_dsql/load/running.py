"""Running statements that are not simply sent: first uses, which are prepared, and pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from psycopg import OperationalError

from pytest_dsql.errors import TransactionError
from pytest_dsql.load.link import CONN_BAD, COPY, Asking, Link
from pytest_dsql.load.statements import LAST_GOOD_STATUS, Answer, Fault, check_fault, is_aborted, statement_of

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGconn, PGresult

    from pytest_dsql.load.loop import Loop

#: More texts than this on one connection are not prepared: they are built by the transaction, not constant.
MAX_PREPARED: Final = 500


@final
class _Expected:
    """What a result of a pipeline belongs to."""

    __slots__ = ("is_answer", "prepares", "sql")

    def __init__(self, sql: str, *, prepares: bool = False, is_answer: bool = False) -> None:
        self.sql: Final = sql
        self.prepares: Final = prepares
        self.is_answer: Final = is_answer


class Running(Link):
    """A connection that runs the statements of one transaction after the other."""

    __slots__ = ("_name", "_names_made", "_sql")

    _name: str  #: of the transaction

    def __init__(self, loop: Loop, converter: Transformer, *, preparing: bool) -> None:
        super().__init__(loop, converter, preparing=preparing)
        self._names_made = 0  #: names of prepared statements so far: none is used twice, whatever became of it
        self._sql = ""  #: the latest statement

    def _run(self, pgconn: PGconn, sql: str, values: Sequence[Any]) -> Asking:
        """Run a statement, preparing it first when it is new; in churn and beyond `MAX_PREPARED` texts, unprepared."""
        statement = self._prepared.get(sql)
        if statement is not None:
            self._post(pgconn.send_query_prepared, statement, values)
        elif not self._preparing or len(self._prepared) >= MAX_PREPARED:
            self._post(pgconn.send_query_params, sql.encode(), values)
        else:
            name = self._new_name()
            self._post(pgconn.send_prepare, name, sql.encode())
            result = yield
            if result.status > LAST_GOOD_STATUS:
                return result
            self._prepared[sql] = name
            self._post(pgconn.send_query_prepared, name, values)
        return (yield)

    def _new_name(self) -> bytes:
        self._names_made += 1
        return b"s%d" % self._names_made

    def _pipeline(self, pgconn: PGconn, steps: Sequence[Any], first: bytes | None, last: bytes | None) -> Asking:
        """Send independent statements in one go; returns their answers, or the first one's fault.

        `first` and `last` are commands that go with them, without answers of their own.
        """
        statements = [statement_of(self._converter, step, self._name) for step in steps]
        expected: list[_Expected] = []
        fresh: dict[str, bytes] = {}
        pgconn.enter_pipeline_mode()
        if first is not None:
            pgconn.send_query_params(first, None)
            expected.append(_Expected(first.decode()))
        for sql, values in statements:
            statement = self._prepared.get(sql) or fresh.get(sql)
            if statement is None and (not self._preparing or len(self._prepared) + len(fresh) >= MAX_PREPARED):
                pgconn.send_query_params(sql.encode(), values)
            else:
                if statement is None:
                    fresh[sql] = statement = self._new_name()
                    pgconn.send_prepare(statement, sql.encode())
                    expected.append(_Expected(sql, prepares=True))
                pgconn.send_query_prepared(statement, values)
            expected.append(_Expected(sql, is_answer=True))
        if last is not None:
            pgconn.send_query_params(last, None)
            expected.append(_Expected(last.decode()))
        self._pipelined = self._gathering = True
        self._post(pgconn.pipeline_sync)
        results = yield
        if isinstance(results, Fault):
            return results
        if self._pgconn is not None and pgconn.status != CONN_BAD:
            pgconn.exit_pipeline_mode()
        answers = []
        for result, one in zip(results, expected, strict=False):
            if result.status > LAST_GOOD_STATUS and not is_aborted(result):
                self._sql = one.sql
                self._refuse_copy(result)
                fault = self._failed(result)
                if one.prepares or one.is_answer:
                    check_fault(fault, one.sql, self._name)
                return fault
            if one.prepares:
                self._prepared[one.sql] = fresh[one.sql]
            elif one.is_answer:
                answers.append(Answer(result, self._converter))
        if len(results) < len(expected):
            return self._lost(OperationalError("the pipeline broke off"))
        return answers

    def _refuse_copy(self, result: PGresult | Fault) -> None:
        if result.status in COPY:
            raise TransactionError(
                f"transaction {self._name}: COPY is no statement of a transaction: {self._sql!r}",
                transaction=self._name,
            )
