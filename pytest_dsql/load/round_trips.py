"""Round trips of `SELECT 1` on one idle connection: what the network and the server take for nothing."""

from __future__ import annotations

import select
from time import perf_counter_ns
from typing import TYPE_CHECKING

from psycopg import OperationalError

from pytest_dsql.load.statements import LAST_GOOD_STATUS

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn


def round_trips(pgconn: PGconn, *, count: int, limit_s: float) -> tuple[list[int], bool]:
    """Return the times of up to `count` round trips in nanoseconds, and whether the connection is still good.

    It ends after `limit_s`, whatever the server does. The caller does nothing else meanwhile: nothing of an event
    loop's is in the figures.
    """
    times: list[int] = []
    limit_ns = perf_counter_ns() + int(limit_s * 1e9)
    poller = select.poll()
    poller.register(pgconn.socket, select.POLLIN)
    try:
        while len(times) < count and (began_ns := perf_counter_ns()) < limit_ns:
            pgconn.send_query(b"SELECT 1")
            pgconn.flush()
            while pgconn.is_busy():
                if not poller.poll(max(0.0, (limit_ns - perf_counter_ns()) / 1e6)):
                    return times, False
                pgconn.consume_input()
            while (result := pgconn.get_result()) is not None:
                if result.status > LAST_GOOD_STATUS:
                    return times, False
            times.append(perf_counter_ns() - began_ns)
    except OperationalError:
        return times, False
    return times, True
