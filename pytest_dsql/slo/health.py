"""Whether a cell says something about the database, or only about the generator and its machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.slo.evidence import Evidence
from pytest_dsql.slo.wording import percent

#: Above this share of a core a worker is the limit, and its time stamps are late.
CPU_LIMIT: Final = 0.85
#: Lags above this part of the tightest latency limit could make or hide a miss.
LAG_PART: Final = 10
#: With no latency limit to compare with, a schedule lag above this says that the generator did not keep up.
LAG_WITHOUT_LIMIT_NS: Final = 10_000_000


@final
@dataclass(frozen=True, slots=True)
class Sign:
    """A sign that the generator, not the database, was the limit."""

    text: str  #: for a sentence
    #: only its connections were too few for what was in flight, which a slow database brings about as well
    of_connections: bool = False
    of_rate: bool = (
        False  #: the database was asked for less than was planned, so that even a pass says nothing about it
    )


def runqueue_wait_per_request_ns(evidence: Evidence, tightest_ns: float | None) -> float | None:
    """Return how long a request waited, on average, for its worker to get a core; None where unknown.

    The kernel reports a share of the window, while a limit is a time. Two estimates turn one into the other, and the
    lower holds, because each is too high where the other fits: the whole wait spread over the requests (too high when
    few requests were made: a worker is woken for other reasons, too), and the share of the time that a request at its
    limit is in flight (too high when many requests share the wait). Both are means; how uneven the waits were shows in
    the loop lag, which has a rule of its own for its p99.
    """
    generator = evidence.generator
    if generator.runqueue_wait is None or not evidence.arrivals:
        return None
    spread = generator.runqueue_wait * evidence.duration_s * 1e9 * generator.workers / evidence.arrivals
    return spread if tightest_ns is None else min(spread, generator.runqueue_wait * tightest_ns)


def starved_engine(evidence: Evidence, tightest_ns: float | None) -> str | None:
    """Return how other programs kept the embedded engine waiting for a core, None when they hardly did.

    Its waits become a time per request as the generator's do (`runqueue_wait_per_request_ns`), and that counts by the
    same rule as the generator's lags. The gateway is one process: while it waits, all requests in flight do, so its
    waits are not spread over them; a request at its limit meets as large a part of it as the gateway waits of the time.
    """
    if evidence.engine_starved is None or not evidence.arrivals:
        return None
    each_ns = evidence.duration_s * 1e9 / evidence.arrivals
    if tightest_ns is None:
        wait_ns = evidence.engine_starved * each_ns
    else:
        rest = max(0.0, evidence.engine_starved - evidence.gateway_starved)
        wait_ns = evidence.gateway_starved * tightest_ns + rest * min(each_ns, tightest_ns)
    bound, bound_text = _bound(tightest_ns)
    if wait_ns <= bound:
        return None
    return f"a request waited about {wait_ns / 1e6:.1f} ms for cores that other programs used, {bound_text}"


def _bound(tightest_ns: float | None) -> tuple[float, str]:
    """Return above which lag a miss may be the environment's, and how to say so."""
    if tightest_ns is None:
        return LAG_WITHOUT_LIMIT_NS, f"above {LAG_WITHOUT_LIMIT_NS / 1e6:g} ms"
    bound = tightest_ns / LAG_PART
    return bound, f"above {bound / 1e6:g} ms, a tenth of the tightest limit ({tightest_ns / 1e6:g} ms)"


def limits_of_the_generator(
    evidence: Evidence, tightest_ns: float | None, tightest_p999_ns: float | None = None
) -> list[Sign]:
    """Return each sign that the generator, not the database, was the limit; empty when healthy.

    `tightest_ns` is the lowest latency limit that the cell is judged by, `tightest_p999_ns` the lowest that only one
    request in a thousand may exceed: ten such lags in a thousand, which a p99 hides, would make it missed. None: no
    such limit.
    """
    generator = evidence.generator
    signs: list[Sign] = []
    if generator.cpu > CPU_LIMIT:
        signs.append(
            Sign(
                f"the busiest worker used {percent(generator.cpu)} of a core, above {percent(CPU_LIMIT)}: "
                "more workers, a larger machine or fewer connections would show the database"
            )
        )
    bound, bound_text = _bound(tightest_ns)
    lags: list[tuple[str, float | None]] = [
        ("the event loop learned of answers late: loop lag p99", generator.loop_lag_p99_ns),
        ("requests were sent late: schedule lag p99", generator.schedule_lag_p99_ns),
        ("a worker waited for a core: run-queue wait per request", runqueue_wait_per_request_ns(evidence, tightest_ns)),
    ]
    for what, lag_ns in lags:
        if lag_ns is not None and lag_ns > bound:
            signs.append(Sign(f"{what} {lag_ns / 1e6:.1f} ms, {bound_text}"))
    waits = [("p99", generator.connection_wait_p99_ns, bound, bound_text)]
    if tightest_p999_ns is not None:
        rare, rare_text = _bound(tightest_p999_ns)
        rare_text = rare_text.replace("the tightest limit", "the tightest p999 limit")
        waits.append(("p999", generator.connection_wait_p999_ns, rare, rare_text))
        own_ns = generator.own_lag_p999_ns
        if own_ns is not None and own_ns > rare:
            signs.append(Sign(f"requests or their answers were late: lag p999 {own_ns / 1e6:.1f} ms, {rare_text}"))
    for name, wait_ns, most_ns, most_text in waits:
        if wait_ns is not None and wait_ns > most_ns:
            signs.append(
                Sign(
                    f"requests queued for a connection: connection wait {name} {wait_ns / 1e6:.1f} ms, {most_text}; "
                    "more connections would tell whether their number or the database is the limit",
                    of_connections=True,
                )
            )
    if generator.offered_rate is not None and evidence.duration_s > 0:
        planned = generator.offered_rate * evidence.duration_s
        # Four standard deviations of a Poisson count, and never less than 1 %: missing more is not chance.
        if evidence.arrivals < planned - max(4 * math.sqrt(planned), planned / 100):
            signs.append(
                Sign(
                    f"the generator offered {evidence.arrivals / evidence.duration_s:,.1f} requests/s "
                    f"of the {generator.offered_rate:,.1f} that were planned",
                    of_rate=True,
                )
            )
    return signs
