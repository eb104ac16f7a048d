"""What asking for many connections showed: how many were made, how long each phase took, which were refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, final

from pytest_dsql.errors import Inconclusive, Invalid, SloMissed
from pytest_dsql.load.cost import Cost
from pytest_dsql.load.measurement import ConnectStats
from pytest_dsql.load.statistics import LatencySummary, Summaries, distribution
from pytest_dsql.load.table import connections_table
from pytest_dsql.slo.connecting import EXPLAINED, judge_connections
from pytest_dsql.slo.connecting_limit import Connecting, ConnectingLimit, what_limits_connecting
from pytest_dsql.slo.verdict import Verdict

#: Of connecting, in which its rate may be held.
_PHASES: Final = ("tcp", "tls", "authentication", "startup")


def judge_stats(stats: ConnectStats, allowed: Collection[str], cpu: float | None) -> Verdict:
    """Decide on what was counted while connecting."""
    return judge_connections(
        attempted=stats.attempted,
        succeeded=stats.succeeded,
        refused=stats.refused,
        messages=stats.messages,
        allowed=allowed,
        cpu=cpu,
    )


def raise_unless_passed(verdict: Verdict, text: str) -> None:
    """Raise the error of a verdict that is no pass."""
    __tracebackhide__ = True
    match verdict.outcome:
        case "fail":
            raise SloMissed(text)
        case "inconclusive":
            raise Inconclusive(text)
        case "invalid":
            raise Invalid(text)


@final
class Connections:
    """The result of a burst of connections, of a sustained rate, or of connecting one after the other (`kind`)."""

    def __init__(
        self,
        stats: ConnectStats,
        *,
        id: str,  # noqa: A002 - the results file's word
        test: str,
        target: str,
        kind: str,
        requested: int,
        workers: int = 1,
        asked_per_s: float | None = None,
        repeat: int = 1,
        simulated: bool = False,
        record: Callable[[Connections], None] | None = None,
    ) -> None:
        self.stats: Final = stats
        self.id: Final = id
        self.test: Final = test
        self.target: Final = target
        self.kind: Final = kind
        self.requested: Final = requested  #: connections asked for
        self.workers: Final = workers  #: generator processes that asked for them
        self.asked_per_s: Final = asked_per_s  #: the rate at which they were asked for; None: as fast as may be
        self._limit: ConnectingLimit | None = None
        self.repeat: Final = repeat
        self.simulated: Final = simulated  #: whether the target injected latency or faults
        self._record = record
        self._verdict: Verdict | None = None
        #: resolve, tcp, tls, authentication, startup, total: how long each took, over the connections made
        self.phases: Final = Summaries(
            stats.phases_ns, lambda name: LatencySummary.of(distribution(stats.phases_ns[name]))
        )

    def __repr__(self) -> str:
        return f"<connections {self.id}: {self.succeeded} of {self.attempted}>"

    @property
    def cost(self) -> Cost | None:
        """What they have used of what is paid for; None when nobody knows."""
        return self.stats.cost

    @property
    def attempted(self) -> int:
        """Connections asked for."""
        return self.stats.attempted

    @property
    def succeeded(self) -> int:
        """Connections made."""
        return self.stats.succeeded

    @property
    def refused(self) -> Mapping[str, int]:
        """SQLSTATE, or `connection` where the server said nothing -> refusals."""
        return self.stats.refused

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first attempt until the last was decided."""
        return self.stats.elapsed_ns / 1e9

    @property
    def rate_per_s(self) -> float:
        """Connections made per second."""
        return self.succeeded / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def client_cpu_ms_per_connection(self) -> float:
        """CPU time of the generator for each connection asked for: what tells its limit from the target's."""
        return self.stats.client_cpu_ns / 1e6 / self.attempted if self.attempted else 0.0

    @property
    def client_cpu_share(self) -> float:
        """Share of a core that each of the generator's processes used while it connected."""
        return self._share(self.stats.client_cpu_ns)

    def _share(self, time_ns: int) -> float:
        return time_ns / (self.stats.elapsed_ns * self.workers) if self.stats.elapsed_ns else 0.0

    @property
    def memory_bytes_per_connection(self) -> float | None:
        """By how much the generator's processes grew for each connection that they held; None where that is unknown."""
        grown = self.stats.memory_bytes
        return None if grown is None or not self.succeeded else grown / self.succeeded

    @property
    def limit(self) -> ConnectingLimit:
        """What limited their rate, as far as these alone can tell, or as `Load.what_limits` found by several."""
        return self._limit or what_limits_connecting(self.as_run())

    def as_run(self) -> Connecting:
        """Return what their rate is judged by."""
        phases = {name: one.p50_ms for name, one in self.phases.items() if name in _PHASES and one.n}
        return Connecting(
            workers=self.workers,
            rate_per_s=self.rate_per_s,
            cpu=self.client_cpu_share,
            waited=self.stats.client_waited_ns / (self.stats.elapsed_ns * self.workers)
            if self.stats.elapsed_ns
            else 0.0,
            refused=self.refused,
            asked_per_s=self.asked_per_s,
            phases_ms=phases,
        )

    def limited(self, limit: ConnectingLimit) -> None:
        """Take what several runs together have shown, into the results too."""
        self._limit = limit
        if self._record is not None:
            self._record(self)

    @property
    def tokens_signed(self) -> int:
        """Signatures made for all of them."""
        return self.stats.tokens_signed

    @property
    def standing(self) -> Verdict | None:
        """The verdict so far; None before `assert_connected`."""
        return self._verdict

    def table(self) -> str:
        """Return what was measured as text of at most 92 columns."""
        return connections_table(self, self._verdict)

    def assert_connected(self, allowed: Collection[str] = EXPLAINED) -> None:
        """Pass when every connection was made or was refused with one of the SQLSTATEs in `allowed`.

        Raises SloMissed, Inconclusive or Invalid, whose text is the table; the verdict goes to the results file.
        """
        __tracebackhide__ = True
        # One after the other the generator is either connecting or waiting: its share of CPU is no sign of a limit.
        cpu = None if self.kind == "sequential" else self.client_cpu_share
        self._verdict = judge_stats(self.stats, allowed, cpu)
        if self._record is not None:
            self._record(self)
        raise_unless_passed(self._verdict, self.table())
