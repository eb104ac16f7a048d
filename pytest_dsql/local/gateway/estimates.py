"""Adds the DPU estimate to PostgreSQL's answer to EXPLAIN ANALYZE VERBOSE."""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final

from pytest_dsql.local.dpu import explain
from pytest_dsql.local.dpu.tables import look_up
from pytest_dsql.local.gateway import frames

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster
    from pytest_dsql.local.dpu.explain import PlanFormat

_LOG: Final = logging.getLogger(__name__)

#: A row of one value: the number of values, and the length of the first.
_ONE_VALUE: Final = Struct(">HI")


async def with_estimate(cluster: Cluster, sql: str, form: PlanFormat, messages: list[bytes]) -> list[bytes]:
    """Give the messages of an EXPLAIN's answer with the rows of the estimate among them."""
    rows = [message[frames.HEADER_SIZE + _ONE_VALUE.size :] for message in messages if message[0] == frames.DATA_ROW]
    if not rows or messages[-1][0] != frames.COMMAND_COMPLETE:
        return messages  # it failed, or has given some of its rows only
    multi_region = bool(cluster.peers)
    try:
        executed = explain.read_plan(rows, form)
        written = explain.written_tables(executed)
        tables = await look_up(cluster.socket_path, written) if written else {}
        columns = explain.set_columns(sql) if written else frozenset()
        dpu = explain.estimate(executed, tables, columns, multi_region=multi_region)
        rows = explain.added(rows, form, dpu, multi_region=multi_region)
    except Exception:
        # The statement has run: its answer must not be lost for want of a remark.
        _LOG.exception("no estimate of a plan of %d rows", len(rows))
        return messages
    before = [message for message in messages[:-1] if message[0] != frames.DATA_ROW]
    return [*before, *map(_row, rows), messages[-1]]


def _row(value: bytes) -> bytes:
    return frames.message(frames.DATA_ROW, _ONE_VALUE.pack(1, len(value)) + value)
