"""What a process can ask about a cluster's latency, faults and cost: functions from the request to the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_dsql.errors import UsageError

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster

Message: TypeAlias = Mapping[str, Any]


async def _latency(cluster: Cluster, _request: Message) -> Message:
    return {"profile": cluster.latency.profile.name}


async def _use_latency(cluster: Cluster, request: Message) -> Message:
    from pytest_dsql.local.latency.profile import load

    cluster.latency.use(load(request["profile"]))
    return {"profile": cluster.latency.profile.name}


async def _faults(cluster: Cluster, _request: Message) -> Message:
    return {"counts": cluster.faults.counts()}


async def _add_fault(cluster: Cluster, request: Message) -> Message:
    from pytest_dsql.local.faults.fault import Fault

    return {"name": cluster.faults.add(Fault.from_json(request["fault"]))}


async def _remove_fault(cluster: Cluster, request: Message) -> Message:
    try:
        return {"count": cluster.faults.remove(request["name"])}
    except KeyError:
        raise UsageError(f"no fault {request['name']!r} is in force") from None


async def _clear_faults(cluster: Cluster, _request: Message) -> Message:
    cluster.faults.clear()
    return {}


async def _injected(cluster: Cluster, _request: Message) -> Message:
    return {"latency": cluster.latency.injected, "faults": cluster.faults.injected, "active": cluster.latency.active}


async def _dpu(cluster: Cluster, _request: Message) -> Message:
    return {"dpu": (await cluster.dpu.totals()).to_json()}


async def _reset_dpu(cluster: Cluster, _request: Message) -> Message:
    await asyncio.to_thread(cluster.dpu.reset)
    return {}


async def reset_trouble(cluster: Cluster) -> None:
    """Go back to the latency and the faults that the engine was started with, and to the start of their streams."""
    cluster.latency.reset()
    cluster.faults.reset()


TROUBLE_COMMANDS: Final[Mapping[str, Callable[[Cluster, Message], Awaitable[Message]]]] = {
    "latency": _latency,
    "use_latency": _use_latency,
    "faults": _faults,
    "add_fault": _add_fault,
    "remove_fault": _remove_fault,
    "clear_faults": _clear_faults,
    "injected": _injected,
    "dpu": _dpu,
    "reset_dpu": _reset_dpu,
}
