"""What a cluster's transactions have cost so far, with the minimums of each.

While statements run, only their answers' command tags are kept, and equal transactions are counted together. What rows
and index entries weigh is looked up when somebody asks for the totals.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from pytest_dsql.local.dpu import formulas
from pytest_dsql.local.dpu.explain import set_columns
from pytest_dsql.local.dpu.formulas import LEAST_ENTRY
from pytest_dsql.local.dpu.processor import processor_seconds
from pytest_dsql.local.dpu.tables import UNKNOWN, Table, look_up

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.hooks import Statement

#: What one statement has done: what is known of it, and PostgreSQL's command tag.
Answer: TypeAlias = "tuple[Statement, bytes]"
#: A transaction: whether it committed, and its statements.
Shape: TypeAlias = "tuple[bool, tuple[Answer, ...]]"

#: Kinds of transactions that are told apart. When there are more, they are weighed and forgotten: a client that writes
#: values into its texts makes every transaction another one.
_MOST_SHAPES: Final = 2_048

_TAG: Final = re.compile(rb"(SELECT|INSERT \d+|UPDATE|DELETE|COPY) (\d+)")


@final
@dataclass(frozen=True, slots=True)
class DpuTotals:
    """What a cluster has used since the start or the last reset, in DPU.

    `read` and `write` are estimates from the rows that were returned and modified, by the published formulas, a
    transaction's minimums included; `compute` is PostgreSQL's processor time, None where the kernel doesn't tell it.
    """

    compute: float | None
    read: float
    write: float
    multi_region_write: float  #: the same as `write` on a multi-Region cluster, else 0
    transactions: int  #: that read or wrote something
    writing_transactions: int

    @property
    def total(self) -> float:
        """All of it."""
        return (self.compute or 0.0) + self.read + self.write + self.multi_region_write

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values."""
        return asdict(self)


@final
class Meter:
    """The totals of one cluster."""

    def __init__(self, socket_path: str, *, multi_region: bool) -> None:
        self._socket_path = socket_path
        self._multi_region = multi_region
        self._shapes: dict[Shape, int] = {}
        self._reads: dict[Answer, int] = {}  #: statements that were a transaction of their own and wrote nothing
        self._weighed = (0.0, 0.0, 0, 0)  #: read and write in DPU, transactions, writing ones: of forgotten shapes
        self._compute_before: float | None = 0.0

    def count(self, answers: Iterable[Answer], *, committed: bool) -> None:
        """Count a transaction: its statements, each with the command tag of its answer."""
        shape = (committed, tuple(answers))
        shapes = self._shapes
        shapes[shape] = shapes.get(shape, 0) + 1
        if len(shapes) > _MOST_SHAPES:
            self._shapes = {}
            # Without a look at the tables: this is between two statements.
            self._weighed = _added(self._weighed, _weigh(shapes, {}))

    def count_read(self, statement: Statement, tag: bytes) -> None:
        """Count a statement that was a transaction of its own and wrote nothing: the same as `count`, for less time."""
        reads = self._reads
        answer = (statement, tag)
        reads[answer] = reads.get(answer, 0) + 1
        if len(reads) > _MOST_SHAPES:
            self._reads = {}
            self._weighed = _added(self._weighed, _weigh(_alone(reads), {}))

    def reset(self) -> None:
        """Begin anew."""
        self._shapes = {}
        self._reads = {}
        self._weighed = (0.0, 0.0, 0, 0)
        self._compute_before = processor_seconds(self._socket_path)

    async def totals(self) -> DpuTotals:
        """What was used so far. Takes some milliseconds for each table."""
        shapes = self._shapes.copy()
        for shape, count in _alone(self._reads).items():
            shapes[shape] = shapes.get(shape, 0) + count
        named = (one for _, answers in shapes for one, _ in answers)
        names = {name for statement in named for name in (*statement.reads, *statement.writes)}
        tables = await look_up(self._socket_path, names) if names else {}
        read, write, transactions, writing = _added(self._weighed, _weigh(shapes, tables))
        now = await asyncio.to_thread(processor_seconds, self._socket_path)
        before = self._compute_before
        return DpuTotals(
            compute=None if now is None or before is None else now - before,
            read=read,
            write=write,
            multi_region_write=write if self._multi_region else 0.0,
            transactions=transactions,
            writing_transactions=writing,
        )


_Weight: TypeAlias = "tuple[float, float, int, int]"


def _alone(answers: Mapping[Answer, int]) -> dict[Shape, int]:
    """The transactions that statements are which stand alone."""
    return {(True, (answer,)): count for answer, count in answers.items()}


def _added(first: _Weight, second: _Weight) -> _Weight:
    return first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3]


def _weigh(shapes: Mapping[Shape, int], tables: Mapping[str, Table]) -> _Weight:
    """Read and write in DPU, transactions, and writing ones."""
    read = write = 0.0
    transactions = writing = 0
    for (committed, answers), count in shapes.items():
        read_bytes = written_bytes = 0.0
        for answer in answers:
            one_read, one_written = _bytes(answer, tables)
            read_bytes += one_read
            # What a transaction that was rolled back wrote has never reached the storage.
            written_bytes += one_written if committed else 0.0
        read += count * formulas.transaction_read(read_bytes)
        write += count * formulas.transaction_write(written_bytes)
        transactions += count if read_bytes or written_bytes else 0
        writing += count if written_bytes else 0
    return read, write, transactions, writing


def _bytes(answer: Answer, tables: Mapping[str, Table]) -> tuple[float, float]:
    """The bytes that a statement read and wrote."""
    statement, tag = answer
    reads, writes = statement.reads, statement.writes
    found = _TAG.fullmatch(tag)
    if found is None:
        return 0.0, 0.0
    rows = int(found[2])
    read = rows * sum(tables.get(name, UNKNOWN).row_bytes for name in reads)
    if not writes:
        # A query that finds nothing has looked all the same.
        return (max(read, LEAST_ENTRY) if reads else 0.0), 0.0
    verb = {b"UPDATE": "UPDATE", b"DELETE": "DELETE"}.get(found[1], "INSERT")
    # A row is looked up before it is written: its key, or the row that is changed.
    looked_up = max(rows, 1) * LEAST_ENTRY
    table = tables.get(writes[0], UNKNOWN)
    columns = set_columns(statement.sql) if verb == "UPDATE" and table.indexes else frozenset[str]()
    return max(read, looked_up), rows * table.written_bytes(verb, columns)
