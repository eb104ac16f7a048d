"""The verdict on connections: all made, or every refusal explained by a limit of the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pytest_dsql.slo.health import CPU_LIMIT
from pytest_dsql.slo.verdict import Verdict
from pytest_dsql.slo.wording import percent

#: Refusals that a limit of the target explains: too many connections, and too many new ones per second (AWS user
#: guide, "Cluster quotas and database limits in Amazon Aurora DSQL").
EXPLAINED: Final = ("53300", "53400")


def judge_connections(
    *,
    attempted: int,
    succeeded: int,
    refused: Mapping[str, int],
    messages: Mapping[str, str],
    allowed: Collection[str] = EXPLAINED,
    cpu: float | None = None,
) -> Verdict:
    """Decide whether every connection was made or its refusal is explained.

    `refused` counts refusals by SQLSTATE (`connection` where the server said nothing), `messages` has one text for
    each. `cpu` is the share of its cores that the generator used while it connected, None where that says nothing:
    above 85 % a connection that got no answer may have been the generator's own fault, which makes the verdict invalid.
    """
    if not attempted:
        return Verdict("inconclusive", ("No connection was attempted, and no data never passes.",))
    unexplained = {state: count for state, count in refused.items() if count and state not in allowed}
    explained = {state: count for state, count in refused.items() if count and state in allowed}
    busy = (
        f"The generator used {percent(cpu)} of its cores while it connected, so it was its own limit: "
        "more workers would show the database."
        if cpu is not None and cpu > CPU_LIMIT
        else None
    )
    signs = (busy,) if busy else ()
    if unexplained:
        reasons = [_refusal(state, count, attempted, messages) for state, count in unexplained.items()]
        if busy and set(unexplained) == {"connection"}:
            return Verdict("invalid", (busy, *reasons), generator_signs=signs)
        return Verdict("fail", (*reasons, *signs), generator_signs=signs)
    missing = attempted - succeeded - sum(refused.values())
    if missing > 0:
        reason = (
            f"{missing:,} of {attempted:,} connections were neither made nor refused; a longer timeout would settle it."
        )
        return Verdict("inconclusive", (reason, *signs), generator_signs=signs)
    if not succeeded:
        reasons = [_refusal(state, count, attempted, messages) for state, count in explained.items()]
        reason = (
            "No connection was made, and no data never passes; waiting until the limit has recovered would settle it."
        )
        return Verdict("inconclusive", (reason, *reasons), generator_signs=signs)
    at_least = (f"At least: {busy[0].lower()}{busy[1:]}",) if busy else ()
    if not explained:
        made = f"All {attempted:,} connections were made." if attempted > 1 else "The connection was made."
        return Verdict("pass", (made, *at_least), generator_signs=signs)
    counts = ", ".join(f"{count:,} with {state}" for state, count in explained.items())
    reason = (
        f"{succeeded:,} of {attempted:,} connections were made; limits of the target explain the others ({counts})."
    )
    return Verdict("pass", (reason, *at_least), generator_signs=signs)


def _refusal(state: str, count: int, attempted: int, messages: Mapping[str, str]) -> str:
    how = "got no answer from the server" if state == "connection" else f"were refused with {state}"
    said = messages.get(state, "").strip().rstrip(".")
    return f"{count:,} of {attempted:,} connections {how}{f': {said}' if said else ''}."
