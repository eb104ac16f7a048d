"""What limits the rate of new connections: the client, a rate limit of the server, the server, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from pytest_dsql.slo.connecting import EXPLAINED
from pytest_dsql.slo.health import CPU_LIMIT
from pytest_dsql.slo.wording import percent

Limit: TypeAlias = Literal["client", "server rate limit", "server", "none"]

#: With so many times the worker processes the rate would grow by as much if nothing else held it. Growing by less than
#: this part of that, it is held by something that they share.
_GROWS: Final = 0.5


@final
@dataclass(frozen=True, slots=True)
class Connecting:
    """New connections made for a while by some worker processes."""

    workers: int
    rate_per_s: float  #: connections made
    cpu: float  #: share of its core that each worker used
    refused: Mapping[str, int]  #: SQLSTATE -> attempts


@final
@dataclass(frozen=True, slots=True)
class ConnectingLimit:
    """What was found, and why."""

    limited_by: Limit
    reason: str


def what_limits_connecting(one: Connecting, *more: Connecting) -> ConnectingLimit:
    """Decide from the same load made by few and by more worker processes, in ascending order of their number.

    A refusal for too many connections, or too many new ones, is a limit of the server that says so itself. Otherwise
    the client is the limit where its CPU is used up, or where more processes make more connections; where they don't,
    and have CPU to spare, the server is.
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
    if not more:
        return ConnectingLimit("none", "Nothing was at its limit; only more worker processes could show one.")
    grown = last.rate_per_s / one.rate_per_s if one.rate_per_s else float("inf")
    could = last.workers / one.workers
    rates = f"{one.rate_per_s:,.1f}/s with {one.workers}, {last.rate_per_s:,.1f}/s with {last.workers}"
    if grown - 1 >= (could - 1) * _GROWS:
        return ConnectingLimit("client", f"More worker processes made more connections ({rates}).")
    return ConnectingLimit(
        "server", f"More worker processes made hardly more connections, with CPU to spare ({rates})."
    )
