"""Which parts of the engine are told when something about a cluster changes, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.row_limits import apply_limits
from pytest_dsql.local.trouble_commands import reset_trouble

#: Called in the engine's loop; whoever asked for the change goes on when all of them have ended.
Told: TypeAlias = Callable[[Cluster], Awaitable[None]]

#: The cluster has other limits than before, or was just made with others than DSQL's.
LIMITS_CHANGED: Final[tuple[Told, ...]] = (apply_limits,)

#: The cluster goes back to what the engine was started with: a test begins.
RESET: Final[tuple[Told, ...]] = (reset_trouble,)


async def change_limits(cluster: Cluster, limits: Limits) -> None:
    """Give a cluster other limits. Quotas that were used up are full again."""
    cluster.quotas.fill(limits)
    if limits == cluster.limits:
        return
    cluster.limits = limits
    cluster.limits_changed.ring()
    for told in LIMITS_CHANGED:
        await told(cluster)


async def reset(cluster: Cluster) -> None:
    """Have a cluster behave as it did when the engine started; its data and its sessions stay."""
    cluster.clock.reset()
    cluster.quotas.sleep(asleep=cluster.asleep)
    await change_limits(cluster, cluster.initial_limits)
    for told in RESET:
        await told(cluster)
