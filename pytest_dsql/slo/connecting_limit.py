"""What limits the rate of new connections: the client, a rate limit of the server, the server, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, final

from pytest_dsql.slo.connecting import EXPLAINED
from pytest_dsql.slo.health import CPU_LIMIT
from pytest_dsql.slo.wording import percent

Limit: TypeAlias = Literal["client", "server rate limit", "server", "none"]

#: With so many times the worker processes the rate would grow by as much if nothing else held it. Growing by less than
#: this part of that, it is held by something that they share.
_GROWS: Final = 0.5
#: A rate that was asked for counts as reached from this part on.
_REACHED: Final = 0.95


@final
@dataclass(frozen=True, slots=True)
class Connecting:
    """New connections made for a while by some worker processes."""

    workers: int
    rate_per_s: float  #: connections made
    cpu: float  #: share of its core that each worker used
    refused: Mapping[str, int]  #: SQLSTATE -> attempts
    asked_per_s: float | None = None  #: the rate at which they were asked for; None: as fast as may be
    phases_ms: Mapping[str, float] = field(default_factory=dict)  #: median of tcp, tls, authentication, startup
    waited: float = 0.0  #: share of the time that each worker stood waiting for a core


@final
@dataclass(frozen=True, slots=True)
class ConnectingLimit:
    """What was found, and why."""

    limited_by: Limit
    reason: str


def what_limits_connecting(one: Connecting, *more: Connecting) -> ConnectingLimit:
    """Decide from the same load made by few and by more worker processes, in ascending order of their number.

    A refusal for too many connections, or too many new ones, is a limit of the server that says so itself. Otherwise
    the client is the limit where its CPU is used up - what it waits for a core counts as well -, or where more
    processes make more connections; where they don't, and have CPU to spare, the server is. When a rate was asked for
    and reached, nothing was.

    The phase that took longest tells where the time goes: `authentication` and `startup` are the server's own work,
    `tcp` and `tls` the network's and both ends'.
    """
    runs = (one, *more)
    refusals = {state: sum(run.refused.get(state, 0) for run in runs) for state in EXPLAINED}
    if any(refusals.values()):
        counts = ", ".join(f"{count:,} with {state}" for state, count in refusals.items() if count)
        return ConnectingLimit("server rate limit", f"The server refused connections by a limit of its own ({counts}).")
    last = runs[-1]
    if last.cpu > CPU_LIMIT:
        return ConnectingLimit(
            "client",
            f"The {last.workers} worker processes used {percent(last.cpu)} of their cores: connecting costs the client "
            "that much, and a faster one would make more.",
        )
    asked = last.asked_per_s
    if asked is not None and last.rate_per_s >= asked * _REACHED:
        return ConnectingLimit("none", f"All that were asked for were made: {last.rate_per_s:,.1f} of {asked:,.1f}/s.")
    if last.cpu + last.waited > CPU_LIMIT:
        return ConnectingLimit(
            "client",
            f"The {last.workers} worker processes used {percent(last.cpu)} of their cores and waited for one for "
            f"{percent(last.waited)} of the time: with more cores, or nothing else on them, they would make more.",
        )
    if not more and asked is not None:
        return ConnectingLimit(
            "server",
            f"Only {last.rate_per_s:,.1f} of {asked:,.1f} connections a second were made, with CPU to spare"
            f"{_longest_phase(last)}.",
        )
    if not more:
        return ConnectingLimit("none", "Nothing was at its limit; only more worker processes could show one.")
    grown = last.rate_per_s / one.rate_per_s if one.rate_per_s else float("inf")
    could = last.workers / one.workers
    rates = f"{one.rate_per_s:,.1f}/s with {one.workers}, {last.rate_per_s:,.1f}/s with {last.workers}"
    if grown - 1 >= (could - 1) * _GROWS:
        return ConnectingLimit("client", f"More worker processes made more connections ({rates}).")
    return ConnectingLimit(
        "server",
        f"More worker processes made hardly more connections, with CPU to spare ({rates}){_longest_phase(last, one)}.",
    )


def _longest_phase(run: Connecting, before: Connecting | None = None) -> str:
    """Say which phase took longest, and how long it took with fewer worker processes."""
    if not run.phases_ms:
        return ""
    name = max(run.phases_ms, key=lambda phase: run.phases_ms[phase])
    text = f"; most of the time went into {name}: {run.phases_ms[name]:.1f} ms"
    if before is not None and name in before.phases_ms:
        text += f", {before.phases_ms[name]:.1f} ms with {before.workers}"
    return text
