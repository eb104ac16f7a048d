"""What a process can ask of one of the engine's clusters: each a function from the request to the answer.

A part of the engine that can be set while it runs has its line in `COMMANDS`; `client.Engine.ask_cluster` sends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from pytest_dsql.errors import UsageError
from pytest_dsql.local import changes
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.trouble_commands import TROUBLE_COMMANDS

Message: TypeAlias = Mapping[str, Any]
ClusterCommand: TypeAlias = Callable[[Cluster, Message], Awaitable[Message]]


async def _limits(cluster: Cluster, _request: Message) -> Message:
    return {"limits": asdict(cluster.limits)}


async def _set_limits(cluster: Cluster, request: Message) -> Message:
    await changes.change_limits(cluster, cluster.limits.changed(request["limits"]))
    return {"limits": asdict(cluster.limits)}


async def _clock(cluster: Cluster, _request: Message) -> Message:
    return {"now": cluster.clock.now()}


async def _move_clock(cluster: Cluster, request: Message) -> Message:
    try:
        cluster.clock.move(request["seconds"])
    except ValueError as error:
        raise UsageError(str(error)) from None
    # Tokens tell the second in which they were signed. In the next one it is certain that they were signed after this.
    await asyncio.sleep(1.0 - time.time() % 1.0)
    return {"now": cluster.clock.now()}


async def _sleep(cluster: Cluster, _request: Message) -> Message:
    cluster.quotas.sleep()
    return {}


async def _reset(cluster: Cluster, _request: Message) -> Message:
    await changes.reset(cluster)
    return {}


COMMANDS: Final[Mapping[str, ClusterCommand]] = {
    "limits": _limits,
    "set_limits": _set_limits,
    "clock": _clock,
    "move_clock": _move_clock,
    "sleep": _sleep,
    "reset": _reset,
    **TROUBLE_COMMANDS,
}
