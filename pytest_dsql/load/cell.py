"""A cell as its test sees it: figures, and the verdict that the test passes or fails by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, final

from pytest_dsql.errors import BudgetReached, UsageError
from pytest_dsql.load.connections import judge_stats, raise_unless_passed
from pytest_dsql.load.cost import Cost
from pytest_dsql.load.measurement import ConnectStats, GeneratorHealth, Measurement, Outcome, Samples
from pytest_dsql.load.merging import merge_measurements
from pytest_dsql.load.sampled import (
    COMMITTED,
    FAILED,
    PARTS,
    Part,
    attempts_of,
    interval_of,
    requests_of,
    series_in,
    successes_of,
    summary_of,
    uncountable,
)
from pytest_dsql.load.statistics import Summaries
from pytest_dsql.load.table import GENERATOR, cell_table, engine_figures, generator_figures
from pytest_dsql.slo.connecting import EXPLAINED
from pytest_dsql.slo.evidence import Evidence, Generator
from pytest_dsql.slo.interval import CONFIDENCE
from pytest_dsql.slo.objectives import ALLOWED_OVER, Slo
from pytest_dsql.slo.throughput import margin_tps
from pytest_dsql.slo.verdict import LOOKS, ObjectiveResult, Verdict, judge

if TYPE_CHECKING:
    from pytest_dsql.load.digest import Digest
    from pytest_dsql.load.series import Series

#: Runs that many further planned windows of the same cell; returns what they measured and the violations of each
#: invariant over their rows (None when the mix has no invariants).
Extend: TypeAlias = "Callable[[int], tuple[Measurement, Mapping[str, int] | None]]"

#: SQLSTATEs of attempts that lost to another transaction.
_CONFLICTS: Final = ("40001", "40P01")
_WORST_FIRST: Final = ("fail", "invalid", "inconclusive", "pass")


@final
class Cell:
    """What one cell measured. Latencies run from the intended start to the end of the last attempt.

    `latency`, `wait`, `service` and `backoff` hold one `LatencySummary` per transaction: `cell.latency("order_create")
    .p95_ms`. They describe answered requests (committed or rejected); failed ones are in `outcomes`, and a verdict
    counts them as over every limit.
    """

    def __init__(
        self,
        measurement: Measurement,
        *,
        id: str,  # noqa: A002 - the results file's word
        test: str,
        target: str,
        invariants: Mapping[str, int] | None,
        repeat: int = 1,
        window_s: float | None = None,
        simulated: bool = False,
        extend: Extend | None = None,
        record: Callable[[Cell], None] | None = None,
    ) -> None:
        """Wrap a measurement.

        `invariants`: violations by name; None when the mix has none to check, empty when none was checked (which then
        can't pass). `window_s`: the planned length of one window, with which an interrupted cell can still fail.
        `extend` makes further windows when a verdict wants more samples; None: one look only. `record` is called after
        each verdict.
        """
        self.id: Final = id
        self.test: Final = test
        self.target: Final = target
        self.repeat: Final = repeat
        self.simulated = simulated  #: whether the target injected latency or faults
        self._window_s = window_s
        self._extend = extend
        self._record = record
        self._verdicts: list[tuple[Slo | tuple[str, ...], Verdict]] = []
        self._take(measurement, invariants)

    def _take(self, measurement: Measurement, invariants: Mapping[str, int] | None) -> None:
        self.measurement = measurement
        self.simulated = self.simulated or measurement.simulated
        self.invariants = None if invariants is None else dict(invariants)
        self._intervals: dict[tuple[str, str], tuple[float | None, float | None]] = {}
        self._series: Series | None = None
        requests = measurement.requests
        self.latency, self.wait, self.service, self.backoff = (_summaries(requests, part) for part in PARTS)

    def __repr__(self) -> str:
        return f"<cell {self.id}: {self.tps:,.1f} transactions/s, {self.connections} connections>"

    @property
    def connections(self) -> int:
        """Connections that the load ran on."""
        return self.measurement.connections

    @property
    def tps(self) -> float:
        """Successful (committed) transactions per second.

        In open loop those count that committed while the window was open, whenever they were to start: what a database
        that can't keep up works off afterwards is no throughput.
        """
        committed = sum(one.count(*COMMITTED) for one in self.measurement.requests.values())
        return self._per_second(max(0, committed - self._spill))

    @property
    def _spill(self) -> int:
        return 0 if self.measurement.arrival.rate is None else self.measurement.spill

    @property
    def tps_interval(self) -> tuple[float | None, float | None]:
        """Between which the true rate of successes lies, with a confidence of 95 %; None where the window can't tell.

        It comes from how the rate varies within the window; how it varies between runs only repeats can tell.
        """
        margin = margin_tps(successes_of(self.measurement), self.measurement.duration_s, (1 - CONFIDENCE) / 2)
        if not math.isfinite(margin) or not self.tps:
            return None, None
        return max(0.0, self.tps - margin), self.tps + margin

    @property
    def attempt_tps(self) -> float:
        """Attempts per second, retries included."""
        return self._per_second(self._attempts)

    @property
    def _attempts(self) -> int:
        return sum(attempts_of(one) for one in self.measurement.requests.values())

    def _per_second(self, count: int) -> float:
        duration_s = self.measurement.duration_s
        return count / duration_s if duration_s > 0 else 0.0

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome -> requests, all transactions together. They add up to the arrivals."""
        return {one.name.lower(): sum(s.count(one) for s in self.measurement.requests.values()) for one in Outcome}

    @property
    def errors(self) -> dict[str, int]:
        """SQLSTATE, or `connection` -> failed attempts, all transactions together."""
        total: Counter[str] = Counter()
        for one in self.measurement.requests.values():
            total.update(one.errors)
        return dict(total)

    @property
    def messages(self) -> dict[str, str]:
        """What the database said, masked: for each key of `errors` the text of one failed attempt."""
        found: dict[str, str] = {}
        for one in self.measurement.requests.values():
            found = one.messages | found
        return found

    @property
    def conflict_rate(self) -> float:
        """Share of the attempts that lost to another transaction."""
        attempts = self._attempts
        return sum(self.errors.get(state, 0) for state in _CONFLICTS) / attempts if attempts else 0.0

    @property
    def failure_rate(self) -> float:
        """Share of the requests that failed technically, after their last attempt, or were never sent."""
        arrivals = self.measurement.arrivals
        failed = sum(one.count(*FAILED) for one in self.measurement.requests.values())
        return failed / arrivals if arrivals else 0.0

    @property
    def generator(self) -> GeneratorHealth:
        """How near the generator was to its own limits."""
        return self.measurement.generator

    @property
    def connect(self) -> ConnectStats:
        """The connections that were made."""
        return self.measurement.connect

    @property
    def rtt_ms(self) -> float | None:
        """Median round trip of `SELECT 1` on an idle connection before the cell; None when it was not measured."""
        rtt = self.measurement.rtt_ns
        return None if rtt is None else rtt.p50 / 1e6

    @property
    def cost(self) -> Cost | None:
        """What the cell has used of what is paid for, in DPU and USD; None when nobody knows."""
        return self.measurement.cost

    @property
    def is_counted(self) -> bool:
        """Whether requests were only counted, not kept: percentiles are then at most 0.1 % too long."""
        return self.measurement.counted is not None

    @property
    def series(self) -> Series:
        """The window second by second; in steps of several seconds when it is longer than an hour."""
        if self._series is None:
            self._series = series_in(self.measurement)
        return self._series

    @property
    def look(self) -> int:
        """Which look the cell is at: 1, 2 or 3 after 1, 2 or 4 planned windows."""
        return self.measurement.look.bit_length()

    def interval(self, transaction: str, percentile: str) -> tuple[float | None, float | None]:
        """Return between which milliseconds the true percentile (`p50` ... `p999`) lies, with a confidence of 95 %.

        An end is None where so few answered requests can't give one. Raises KeyError for an unknown transaction.
        """
        known = self._intervals.get((transaction, percentile))
        if known is None:
            share = 1 - float(ALLOWED_OVER[percentile])
            low, high = interval_of(self.measurement.requests[transaction], share)
            known = None if low is None else low / 1e6, None if high is None else high / 1e6
            self._intervals[transaction, percentile] = known
        return known

    def verdict(self, slo: Slo) -> Verdict:
        """Decide whether the cell meets the objectives, and record it.

        While the verdict is inconclusive for want of samples only, the cell is extended to twice its windows, at most
        twice. Asking again with an equal Slo gives the same verdict. Another Slo is judged at the look that the cell
        has reached, with that look's part of the level: it never spends a look that it was not judged at.
        """
        for known, verdict in self._verdicts:
            if known == slo:
                return verdict
        if self.is_counted and (limits := uncountable(slo)):
            raise UsageError(
                "the requests of the cell are only counted, by four digits of their latency, so its limits can have no "
                f"more: {', '.join(f'{one:g} ms' for one in limits)}"
            )
        looks = LOOKS if self._extend is not None else 1
        while True:
            verdict = judge(slo, self.evidence(), look=min(self.look, looks), looks=looks)
            if not verdict.wants_samples or self._extend is None:
                break
            windows = self.measurement.look
            try:
                stretch = self._extend(windows)
            except BudgetReached as reached:
                verdict = replace(verdict, reasons=(*verdict.reasons, f"It can't have more samples: {reached}."))
                break
            self._add(windows, *stretch)
        engine = engine_figures(self)
        figures = generator_figures(self) + ("" if engine is None else f"; the embedded engine: {engine}")
        verdict = replace(verdict, reasons=(*verdict.reasons, f"{GENERATOR}{figures}."))
        self._keep(slo, verdict)
        return verdict

    def _add(self, windows: int, measurement: Measurement, invariants: Mapping[str, int] | None) -> None:
        merged = merge_measurements(self.measurement, measurement)
        # However long the stretch was, only the cell knows that it stands for so many planned windows.
        merged.look = self.measurement.look + windows
        if self.invariants is None or invariants is None:
            self._take(merged, self.invariants or invariants)
            return
        names = [*self.invariants, *(name for name in invariants if name not in self.invariants)]
        counts = {name: self.invariants.get(name, 0) + invariants.get(name, 0) for name in names}
        self._take(merged, counts if invariants else {})

    def assert_meets(self, slo: Slo) -> None:
        """Pass when the cell meets the objectives.

        Raises SloMissed, Inconclusive or Invalid (AssertionErrors), whose text is the verdict and the table.
        """
        __tracebackhide__ = True
        verdict = self.verdict(slo)
        raise_unless_passed(verdict, self.table(verdict))

    def assert_connected(self, allowed: Collection[str] = EXPLAINED) -> None:
        """Pass when every connection of the cell was made or was refused with one of the SQLSTATEs in `allowed`.

        Raises SloMissed or Inconclusive, whose text is the table. A violated invariant fails here as well.
        """
        __tracebackhide__ = True
        verdict = judge_stats(self.connect, allowed, None)
        void = self._void()
        if void is not None:
            verdict = void
        elif self.measurement.interrupted is not None and verdict.outcome == "pass":
            verdict = Verdict("inconclusive", (f"The cell ended early ({self.measurement.interrupted}).",))
        self._keep(tuple(allowed), verdict)
        raise_unless_passed(verdict, self.table(verdict))

    def assert_consistent(self) -> None:
        """Pass when every invariant was checked and holds: for cells that ask how much, and promise no latency.

        Raises SloMissed for a violated invariant, Inconclusive when none was checked, nothing committed, or the cell
        ended early; their text is the table.
        """
        __tracebackhide__ = True
        committed = sum(one.count(*COMMITTED) for one in self.measurement.requests.values())
        verdict = self._void()
        if verdict is None and self.measurement.interrupted is not None:
            verdict = Verdict("inconclusive", (f"The cell ended early ({self.measurement.interrupted}).",))
        if verdict is None and not committed:
            verdict = Verdict("inconclusive", ("No transaction committed, and no data never passes.",))
        if verdict is None and not self.invariants:
            verdict = Verdict("inconclusive", ("No invariant was checked, and no data never passes.",))
        if verdict is None:
            count = len(self.invariants or ())
            verdict = Verdict("pass", (f"All {count} invariants hold after {committed:,} committed transactions.",))
        self._keep(("consistent",), verdict)
        raise_unless_passed(verdict, self.table(verdict))

    def _keep(self, question: Slo | tuple[str, ...], verdict: Verdict) -> None:
        self._verdicts = [(known, one) for known, one in self._verdicts if known != question]
        self._verdicts.append((question, verdict))
        if self._record is not None:
            self._record(self)

    def _void(self) -> Verdict | None:
        violated = {name: count for name, count in (self.invariants or {}).items() if count}
        if not violated:
            return None
        counts = ", ".join(f"{name} ({count:,})" for name, count in violated.items())
        return Verdict("fail", (f"Violated invariants: {counts}; the cell is void whatever its latency.",))

    @property
    def standing(self) -> Verdict | None:
        """All verdicts so far as one: the worst outcome, every reason and objective; None before the first.

        A cell with a violated invariant fails even when nobody has judged it.
        """
        verdicts = [verdict for _question, verdict in self._verdicts]
        void = self._void()
        if void is not None and not any(one.outcome == "fail" for one in verdicts):
            verdicts.append(void)
        if not verdicts:
            return None
        verdicts.sort(key=lambda one: _WORST_FIRST.index(one.outcome))
        objectives: list[ObjectiveResult] = []
        for one in verdicts:
            objectives += (result for result in one.objectives if result not in objectives)
        return Verdict(
            verdicts[0].outcome,
            tuple(dict.fromkeys(reason for one in verdicts for reason in one.reasons)),
            tuple(objectives),
            max(one.look for one in verdicts),
            generator_signs=tuple(dict.fromkeys(sign for one in verdicts for sign in one.generator_signs)),
            engine_signs=tuple(dict.fromkeys(sign for one in verdicts for sign in one.engine_signs)),
        )

    def table(self, verdict: Verdict | None = None) -> str:
        """Return what was measured and decided as text of at most 92 columns; `verdict` defaults to the standing."""
        return cell_table(self, verdict or self.standing)

    def evidence(self) -> Evidence:
        """Return what a verdict looks at."""
        measured = self.measurement
        complete: float | None = 1.0
        if measured.interrupted is not None:
            planned_s = None if self._window_s is None else self._window_s * measured.look
            complete = None if planned_s is None else min(1.0, max(measured.duration_s / planned_s, 1e-3))
        health = measured.generator
        return Evidence(
            requests=[requests_of(one) for one in measured.requests.values()],
            duration_s=measured.duration_s,
            successes=successes_of(measured),
            spill=self._spill,
            generator=Generator(
                cpu=health.cpu,
                runqueue_wait=health.runqueue_wait,
                own_lag_p999_ns=health.own_lag_p999_ns,
                connection_wait_p999_ns=None if measured.arrival.kind == "pooled" else health.connection_wait_p999_ns,
                loop_lag_p99_ns=health.loop_lag_p99_ns,
                schedule_lag_p99_ns=health.schedule_lag_p99_ns,
                # What tasks wait for a connection of a pool is what the cell asks for, no limit of the generator.
                connection_wait_p99_ns=None if measured.arrival.kind == "pooled" else health.connection_wait_p99_ns,
                offered_rate=measured.arrival.rate,
                workers=measured.workers,
            ),
            engine_starved=None if measured.engine is None else measured.engine.starved,
            gateway_starved=0.0 if measured.engine is None else measured.engine.gateway_starved,
            others_share=0.0 if measured.engine is None else measured.engine.others_share,
            invariants=self.invariants,
            interrupted=measured.interrupted,
            complete=complete,
        )


def _summaries(requests: Mapping[str, Samples | Digest], part: Part) -> Summaries:
    return Summaries(requests, lambda name: summary_of(requests[name], part))
