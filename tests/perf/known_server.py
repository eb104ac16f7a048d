"""A server whose answer times are known: it answers a `/*known*/` statement after a while, and notes how long it took.

`python -m tests.perf.known_server SEED STALL_AT STALL_MS`: prints its port; blocks altogether once, for STALL_MS, when
request number STALL_AT arrives (0: never). When its input closes, it prints what it noted as JSON and ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

from tests.load.fake_server import Session, frame

ROW = frame(b"D", b"\0\1\0\0\0\2ok") + frame(b"C", b"SELECT 1\0")


class Known(Session):
    rng: random.Random
    stall_at = 0
    stall_s = 0.0
    took_ns: list[int] = []  # noqa: RUF012 - one process, one list
    stalls_ns: list[int] = []  # noqa: RUF012

    async def execute(self, sql: str, operation: str | None) -> bytes:
        if "/*known*/" not in sql:
            return await super().execute(sql, operation)
        arrived_ns = time.perf_counter_ns()
        number = len(Known.took_ns)
        Known.took_ns.append(0)
        if number + 1 == Known.stall_at:
            time.sleep(Known.stall_s)  # noqa: ASYNC251 - nobody is served meanwhile: that is what a stall is
            Known.stalls_ns.append(time.perf_counter_ns() - arrived_ns)
        # A few ms, with a tail: the 99.9th percentile is about ten times the median.
        await asyncio.sleep(0.002 + Known.rng.lognormvariate(-6.5, 0.8))
        Known.took_ns[number] = time.perf_counter_ns() - arrived_ns
        return ROW


def waited_for_a_core_ns() -> int:
    """Return how long this process was ready to run and did not, since it began (the kernel's sched-stats.rst)."""
    return int(Path("/proc/self/schedstat").read_text().split()[1])


async def main() -> None:
    seed, stall_at, stall_ms = sys.argv[1:]
    Known.rng = random.Random(int(seed))
    Known.stall_at, Known.stall_s = int(stall_at), int(stall_ms) / 1000

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Known(reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    before_ns = waited_for_a_core_ns()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, gone.set)
    await gone.wait()
    waited_ns = waited_for_a_core_ns() - before_ns
    print(json.dumps({"took_ns": Known.took_ns, "stalls_ns": Known.stalls_ns, "waited_ns": waited_ns}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
