"""The tables of a cell and of a burst as plain text, at most 92 columns, readable in any terminal or log."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pytest_dsql.masking import mask
from pytest_dsql.slo.verdict import ObjectiveResult, Verdict
from pytest_dsql.slo.wording import percent

if TYPE_CHECKING:
    from pytest_dsql.load.cell import Cell
    from pytest_dsql.load.connections import Connections
    from pytest_dsql.load.statistics import LatencySummary

#: pytest puts eight columns before each line of an error; together they make a hundred.
WIDTH: Final = 92
_NAME_WIDTH: Final = 24
_LABEL_WIDTH: Final = 12
#: transaction, metric, limit, measured, n, over, verdict
_ROW: Final = f"{{:<{_NAME_WIDTH}}} {{:<8}} {{:>11}} {{:>11}} {{:>10}} {{:>8}}  {{}}"


#: How the reason begins that tells of the generator.
GENERATOR: Final = "The generator: "
#: What a table says of a target that injected latency or faults.
SIMULATED: Final = ", with injected latency or faults"


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` characters; the end survives, where names that look alike differ."""
    return text if len(text) <= width else f"..{text[-(width - 2) :]}"


def cell_table(cell: Cell, verdict: Verdict | None) -> str:
    """Return the verdict with its first reason, one line per objective, and what surrounded them."""
    measured = cell.measurement
    arrival = {"closed": "closed loop", "churn": "a new connection per transaction"}.get(
        measured.arrival.kind, f"{measured.arrival.kind} arrivals"
    )
    if measured.arrival.tasks is not None:
        arrival = f"{_count(measured.arrival.tasks, 'task')} sharing the connections"
    if measured.arrival.rate is not None:
        arrival += f" at {measured.arrival.rate:,.1f}/s"
    lines = [
        *_headline(verdict),
        *_field("cell", cell.id),
        *_field(
            "",
            f"on {cell.target}: {arrival}, {_count(cell.connections, 'connection')}, "
            f"{_count(measured.workers, 'worker')}, {measured.duration_s:.1f} s, look {cell.look}"
            + (SIMULATED if cell.simulated else "")
            + ("" if measured.access == "uniform" else f", access by {measured.access}")
            + (", pipelined" if measured.pipeline else "")
            + (", requests counted and not kept" if cell.is_counted else ""),
        ),
        "",
        _ROW.format("transaction", "metric", "limit", "measured", "requests", "over", "verdict"),
        *_rows(cell, verdict),
        "",
        *_field(
            "throughput",
            f"{cell.tps:,.1f} transactions/s, {cell.attempt_tps:,.1f} attempts/s, "
            f"{percent(cell.conflict_rate)} of the attempts lost a conflict, "
            f"{percent(cell.failure_rate)} of the requests failed in the end",
        ),
        *_field("outcomes", _counts(cell.outcomes, "no request")),
        *_field("errors", _counts(cell.errors, "none")),
        *(line for item in cell.messages.items() for line in _field("", _message(*item))),
        *_field("generator", _generator(cell, verdict)),
        *_engine(cell, verdict),
        *_field("invariants", _invariants(cell.invariants)),
    ]
    if cell.connect.refused:
        lines += _field("refused", _counts(cell.connect.refused, "none"))
    return mask("\n".join([*lines, *_reasons(verdict)]))


def connections_table(connections: Connections, verdict: Verdict | None) -> str:
    """Return the verdict with its first reason, and how long each phase of connecting took."""
    stats = connections.stats
    row = "{:<16}" + " {:>11}" * 5
    memory, limit = connections.memory_bytes_per_connection, connections.limit
    asked = "" if connections.asked_per_s is None else f" at {connections.asked_per_s:,.1f}/s"
    lines = [
        *_headline(verdict),
        *_field("connections", connections.id),
        *_field(
            "",
            f"on {connections.target}: {connections.kind} of {connections.requested:,}{asked}, "
            f"{_count(connections.workers, 'worker')}" + (SIMULATED if connections.simulated else ""),
        ),
        "",
        row.format("phase", "p50", "p95", "p99", "max", "connections"),
        *(_phase(row, name, summary) for name, summary in connections.phases.items()),
        "",
        *_field(
            "made",
            f"{connections.succeeded:,} of {connections.attempted:,} in {connections.elapsed_s:.2f} s: "
            f"{connections.rate_per_s:,.1f}/s, {_count(connections.tokens_signed, 'token')} signed",
        ),
        *_field("refused", _counts(stats.refused, "none")),
        *_field(
            "generator",
            f"{connections.client_cpu_ms_per_connection:.2f} ms of CPU per connection, "
            f"{percent(connections.client_cpu_share)} of its cores"
            + ("" if memory is None else f", {memory / 1024:,.0f} KiB of memory per connection"),
        ),
        *([] if connections.kind == "sequential" else _field("limited by", f"{limit.limited_by}: {limit.reason}")),
    ]
    return mask("\n".join([*lines, *_reasons(verdict)]))


def _headline(verdict: Verdict | None) -> list[str]:
    """The line that pytest's short summary shows."""
    if verdict is None:
        return []
    return [f"{verdict.outcome}: {verdict.reasons[0]}", ""]


def _rows(cell: Cell, verdict: Verdict | None) -> Iterable[str]:
    judged = set()
    for one in verdict.objectives if verdict else ():
        judged.add(one.transaction)
        limit, measured = _figures(cell, one)
        over = f"{one.over:,}"
        yield _ROW.format(
            shortened(one.transaction or "all", _NAME_WIDTH),
            _METRIC.get(one.metric, one.metric),
            limit,
            measured,
            f"{one.n:,}",
            over,
            one.outcome,
        ).rstrip()
    for name, summary in cell.latency.items():
        if name not in judged:
            for metric in ("p95", "p99"):
                value = _milliseconds(getattr(summary, f"{metric}_ms"))
                yield _ROW.format(shortened(name, _NAME_WIDTH), metric, "-", value, f"{summary.n:,}", "-", "-")


_METRIC: Final = {"failure_rate": "failures", "tps": "rate"}


def _figures(cell: Cell, one: ObjectiveResult) -> tuple[str, str]:
    """The limit and what was measured, in the objective's unit."""
    if one.metric == "failure_rate":
        return percent(one.limit), percent(one.measured or 0.0)
    if one.metric == "tps":
        return f"{one.limit:,.1f}/s", f"{one.measured or 0.0:,.1f}/s"
    summary = cell.latency.get(one.transaction or "")
    return f"{one.limit / 1e6:g} ms", _milliseconds(getattr(summary, f"{one.metric}_ms", math.nan))


def _milliseconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f} ms"


def _phase(row: str, name: str, summary: LatencySummary) -> str:
    values = (summary.p50_ms, summary.p95_ms, summary.p99_ms, summary.max_ms)
    return row.format(name, *map(_milliseconds, values), f"{summary.n:,}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _counts(counts: Mapping[str, int], nothing: str) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or nothing


def _message(key: str, text: str) -> str:
    """What the database said of one kind of error, in about two lines."""
    return textwrap.shorten(f"{key}: {text}", 2 * (WIDTH - _LABEL_WIDTH), placeholder=" ...", break_on_hyphens=False)


def generator_figures(cell: Cell) -> str:
    """Return how near the generator was to its limits and how fine its clock is, for a sentence."""
    health = cell.generator
    parts = [f"CPU {percent(health.cpu)}"]
    if health.runqueue_wait is not None:
        parts.append(f"run-queue wait {percent(health.runqueue_wait)}")
    p50, p99, longest = health.loop_lag_p50_ns, health.loop_lag_p99_ns, health.loop_lag_max_ns
    parts.append(f"loop lag p99 {p99 / 1e6:.2f} ms (p50 {p50 / 1e6:.2f} ms, max {longest / 1e6:.2f} ms)")
    if health.schedule_lag_p99_ns is not None:
        parts.append(f"schedule lag p99 {health.schedule_lag_p99_ns / 1e6:.2f} ms")
    parts.append(
        f"connection wait p99 {health.connection_wait_p99_ns / 1e6:.2f} ms"
        f" ({percent(health.connection_wait_share)} of the requests waited)"
    )
    parts.append(f"longest garbage collection {health.gc_pause_max_ns / 1e6:.2f} ms")
    parts.append(f"clock resolution {health.clock_resolution_ns:,} ns")
    if cell.rtt_ms is not None:
        parts.append(f"round trip {cell.rtt_ms:.2f} ms")
    return ", ".join(parts)


def engine_figures(cell: Cell) -> str | None:
    """Return what the embedded engine had of its machine; None of any other database."""
    work = cell.measurement.engine
    if work is None or not work.elapsed_ns:
        return None
    cores, waiting, others = (ns / work.elapsed_ns for ns in (work.cpu_ns, work.waited_ns, work.others_ns))
    return f"{cores:.2f} cores, {waiting:.2f} processes in the run queue; other programs {others:.2f} cores"


def _engine(cell: Cell, verdict: Verdict | None) -> list[str]:
    figures = engine_figures(cell)
    if figures is None:
        return []
    return _field(
        "engine", figures + (": kept waiting by them" if verdict is not None and verdict.engine_signs else "")
    )


def _generator(cell: Cell, verdict: Verdict | None) -> str:
    state = "" if verdict is None else ": healthy" if verdict.healthy else ": near its limit"
    return generator_figures(cell) + state


def _invariants(invariants: Mapping[str, int] | None) -> str:
    if invariants is None:
        return "the mix has none"
    violated = _counts(invariants, "")
    return f"violated: {violated}" if violated else f"{len(invariants)} checked, none violated"


def _field(label: str, text: str) -> list[str]:
    indent = " " * _LABEL_WIDTH
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{label:<{_LABEL_WIDTH}}", subsequent_indent=indent, break_on_hyphens=False
    ) or [label]


def _reasons(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return []
    lines = ["", f"verdict     {verdict.outcome}"]
    for reason in verdict.reasons:
        if reason.startswith(GENERATOR):
            continue  # it has a field of its own
        lines += textwrap.wrap(reason, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    return lines
