"""The function of Lambda: single operations of the insert workload, one call at a time. Elsewhere an ordinary function.

Nothing of pytest and of the load generator is imported: what the function needs travels with it (`package`).
"""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource

#: Holds the endpoints as JSON: Region -> fields. The first is where a call goes that names none.
VARIABLE: Final = "DSQL_FUNCTION_ENDPOINTS"
OPERATIONS: Final = ("insert", "read")


@final
class Function:
    """What stays in a function between its calls: tokens, and the connection of calls that keep one."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        from pytest_dsql.connect.token import TokenSource

        self._endpoints: Final = dict(endpoints)
        self._tokens: Final[dict[str, TokenSource]] = {name: TokenSource(one) for name, one in endpoints.items()}
        self._kept: dict[str, psycopg.Connection[Any]] = {}
        self._called = False

    def __call__(self, event: Mapping[str, Any], _context: object = None) -> dict[str, Any]:
        """Do what a call asks for: `operation` (insert or read), `times`, `keep` (the connection), `region`.

        `run` (number, prefix, slots), `slot` and `seed` say which ids and keys the call may use; no two calls of a run
        have the same slot. Returns counts, and how long each operation took in microseconds (`packed`), connecting
        included where there was no connection. A refused operation is counted by its SQLSTATE; raises ValueError for
        an operation that there isn't.
        """
        from pytest_dsql.errors import ConnectionFailed
        from pytest_dsql.load.blocking import run_transaction
        from pytest_dsql.load.measurement import Outcome
        from pytest_dsql.transaction import CellRun, Context
        from pytest_dsql.workloads.inserts.workload import InsertsScale, insert_row, read_row

        if event["operation"] not in OPERATIONS:
            raise ValueError(f"no operation is called {event['operation']!r}; there is: {', '.join(OPERATIONS)}")
        operation = insert_row if event["operation"] == "insert" else read_row
        region = event.get("region") or next(iter(self._endpoints))
        keep = bool(event["keep"])
        run = CellRun(event["run"]["number"], event["run"]["prefix"], event["run"]["slots"])
        ctx = Context(seed=event["seed"], run=run, slot=event["slot"], scale=InsertsScale())
        durations, failed = array("I"), Counter[str]()
        committed = ambiguous = connected = 0
        cold, self._called = not self._called, True
        began_ns = time.perf_counter_ns()
        for _ in range(event["times"]):
            ctx.next_request()
            start_ns = time.perf_counter_ns()
            try:
                connection, made = self._connection(region, keep=keep)
                connected += made
                done = run_transaction(connection, operation, ctx)
            except ConnectionFailed as error:
                failed[error.sqlstate or "connection"] += 1
            else:
                committed += done.committed
                ambiguous += done.outcome is Outcome.AMBIGUOUS
                if not done.committed:
                    failed[(done.fault.sqlstate if done.fault else None) or "connection"] += 1
                if not keep or done.connection.closed:
                    self._kept.pop(region, None)
                    done.connection.close()
            durations.append(min((time.perf_counter_ns() - start_ns) // 1000, 0xFFFFFFFF))
        return {
            "operation": event["operation"],
            "committed": committed,
            "ambiguous": ambiguous,
            "failed": dict(failed),
            "connected": connected,
            "cold": cold,
            "elapsed_us": (time.perf_counter_ns() - began_ns) // 1000,
            "packed": packed(durations),
        }

    def _connection(self, region: str, *, keep: bool) -> tuple[psycopg.Connection[Any], bool]:
        from pytest_dsql.connect.dialer import dial

        known = self._kept.get(region)
        if keep and known is not None and not known.closed:
            return known, False
        connection, _phases = dial(self._endpoints[region], self._tokens[region])
        connection.autocommit = True
        if keep:
            self._kept[region] = connection
        return connection, True

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.popitem()[1].close()


def packed(durations: array[int]) -> str:
    """Return durations as text: a thousand of them are about two kilobytes."""
    return base64.b64encode(zlib.compress(durations.tobytes(), 9)).decode()


def unpacked(text: str) -> array[int]:
    """Return the durations again."""
    durations = array("I")
    durations.frombytes(zlib.decompress(base64.b64decode(text)))
    return durations


def described(endpoints: Mapping[str, Endpoint]) -> str:
    """Return endpoints as the function's environment has them. They hold nothing secret: the function signs itself."""
    names = ("host", "hostaddr", "port", "dbname", "user", "region", "sslrootcert")
    return json.dumps({region: {name: getattr(one, name) for name in names} for region, one in endpoints.items()})


def endpoints_of(text: str) -> dict[str, Endpoint]:
    """Read them back; tokens are signed with whatever credentials there are: a function's own role."""
    from pytest_dsql.connect.endpoint import Endpoint

    return {region: Endpoint(**fields) for region, fields in json.loads(text).items()}


_function: Callable[[Mapping[str, Any], object], dict[str, Any]] | None = None


def handler(event: Mapping[str, Any], context: object = None) -> dict[str, Any]:
    """Lambda calls this: see `Function`, of which each instance of the function has one."""
    global _function  # noqa: PLW0603 - what survives between the calls of a function is its module
    if _function is None:
        _function = Function(endpoints_of(os.environ[VARIABLE]))
    return _function(event, context)
