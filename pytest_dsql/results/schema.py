"""The keys of the results file: which there are, what type they have, which may be null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

SCHEMA_VERSION: Final = 1

OUTCOMES: Final = ("ok", "ok_retried", "rejected", "failed", "skipped", "dropped", "ambiguous", "cancelled")
#: In ascending order: what a summary of durations consists of, besides its mean.
PERCENTILES: Final = ("p50", "p95", "p99", "p999", "max")
ARRIVALS: Final = ("closed", "churn", "pooled", "poisson", "constant", "burst", "sustained", "sequential")
LIMITS: Final = ("generator", "machine", "client", "server rate limit", "server", "none")
VERDICTS: Final = ("pass", "fail", "inconclusive", "invalid", "unjudged")


@final
@dataclass(frozen=True, slots=True)
class Key:
    """What stands under one key."""

    types: tuple[type, ...]
    nullable: bool = False
    choices: tuple[str, ...] = ()


_TEXT: Final = Key((str,))
_TEXT_OR_NULL: Final = Key((str,), nullable=True)
_COUNT: Final = Key((int,))
_NUMBER: Final = Key((int, float))
_NUMBER_OR_NULL: Final = Key((int, float), nullable=True)
_OBJECT: Final = Key((dict,))
_LIST: Final = Key((list,))
_FLAG: Final = Key((bool,))


def _summary(path: str) -> dict[str, Key]:
    return {path: _OBJECT, **{f"{path}.{name}": _NUMBER_OR_NULL for name in (*PERCENTILES, "mean")}}


#: Every key, by its path. `[]` stands for each element of a list, `{}` for each name of an object whose names are data.
KEYS: Final[Mapping[str, Key]] = {
    "schema": _COUNT,
    "run": _OBJECT,
    "run.id": _TEXT,
    "run.started_at": _TEXT,
    "run.finished_at": _TEXT_OR_NULL,
    "run.plan": _TEXT,
    "run.scale": _TEXT_OR_NULL,
    "run.seed": _COUNT,
    "run.versions": _OBJECT,
    "run.versions{}": _TEXT,
    "run.host": _OBJECT,
    "run.host.cpu": _TEXT_OR_NULL,
    "run.host.cores": _COUNT,
    "run.host.memory_bytes": Key((int,), nullable=True),
    "run.host.system": _TEXT,
    "run.host.kernel": _TEXT,
    "run.host.architecture": _TEXT,
    "run.machine_fingerprint": _TEXT,
    "run.resumed": _LIST,
    "run.resumed[]": _OBJECT,
    "run.resumed[].at": _TEXT,
    "run.resumed[].machine_fingerprint": _TEXT,
    "run.resumed[].taken": _LIST,
    "run.resumed[].taken[]": _TEXT,
    "targets": _LIST,
    "targets[]": _OBJECT,
    "targets[].name": _TEXT,
    "targets[]{}": Key((str, int, float, bool), nullable=True),
    "cells": _LIST,
    "cells[]": _OBJECT,
    "cells[].id": _TEXT,
    "cells[].test": _TEXT,
    "cells[].target": _TEXT,
    "cells[].repeat": _COUNT,
    "cells[].arrival": _OBJECT,
    "cells[].arrival.kind": Key((str,), choices=ARRIVALS),
    "cells[].arrival.rate": _NUMBER_OR_NULL,
    "cells[].arrival.tasks": Key((int,), nullable=True),
    "cells[].access": _TEXT,
    "cells[].max_attempts": _COUNT,
    "cells[].pipeline": _FLAG,
    "cells[].connections": _COUNT,
    "cells[].workers": _COUNT,
    "cells[].warmup_s": _NUMBER,
    "cells[].duration_s": _NUMBER,
    "cells[].windows": _COUNT,
    "cells[].interrupted": _TEXT_OR_NULL,
    "cells[].counted": _FLAG,
    "cells[].transactions": _OBJECT,
    "cells[].transactions{}": Key((dict,)),
    "cells[].transactions{}.kind": Key((str,), choices=("read", "write")),
    "cells[].transactions{}.count": _COUNT,
    "cells[].transactions{}.outcomes": _OBJECT,
    **{f"cells[].transactions{{}}.outcomes.{name}": _COUNT for name in OUTCOMES},
    "cells[].transactions{}.attempts": _COUNT,
    "cells[].transactions{}.errors": _OBJECT,
    "cells[].transactions{}.errors{}": Key((int,)),
    "cells[].transactions{}.messages": _OBJECT,
    "cells[].transactions{}.messages{}": Key((str,)),
    **_summary("cells[].transactions{}.latency_ms"),
    "cells[].transactions{}.interval_ms": _OBJECT,
    **{
        f"cells[].transactions{{}}.interval_ms.{percentile}_{end}": _NUMBER_OR_NULL
        for percentile in ("p50", "p95", "p99", "p999")
        for end in ("low", "high")
    },
    **_summary("cells[].transactions{}.wait_ms"),
    **_summary("cells[].transactions{}.service_ms"),
    **_summary("cells[].transactions{}.backoff_ms"),
    "cells[].transactions{}.histogram": _TEXT_OR_NULL,
    "cells[].tps": _OBJECT,
    "cells[].tps.success": _NUMBER,
    "cells[].tps.success_low": _NUMBER_OR_NULL,
    "cells[].tps.success_high": _NUMBER_OR_NULL,
    "cells[].tps.attempt": _NUMBER,
    "cells[].series": Key((dict,), nullable=True),
    "cells[].series.step_s": _COUNT,
    **{
        key: value
        for name in ("success", "attempts", "failures")
        for key, value in ((f"cells[].series.{name}", _LIST), (f"cells[].series.{name}[]", _COUNT))
    },
    **{
        key: value
        for name in ("p50", "p99", "max")
        for key, value in ((f"cells[].series.{name}_ms", _LIST), (f"cells[].series.{name}_ms[]", _NUMBER_OR_NULL))
    },
    "cells[].conflict_rate": _NUMBER,
    "cells[].objectives": _LIST,
    "cells[].objectives[]": Key((dict,)),
    "cells[].objectives[].metric": Key((str,), choices=("p50", "p95", "p99", "p999", "failure_rate", "tps")),
    "cells[].objectives[].transaction": _TEXT_OR_NULL,
    "cells[].objectives[].limit": _NUMBER,
    "cells[].objectives[].measured": _NUMBER_OR_NULL,
    "cells[].objectives[].n": _COUNT,
    "cells[].objectives[].over": _COUNT,
    "cells[].objectives[].unfinished": _COUNT,
    "cells[].objectives[].design_effect": _NUMBER,
    "cells[].objectives[].level": _NUMBER,
    "cells[].objectives[].look": _COUNT,
    "cells[].objectives[].outcome": Key((str,), choices=("pass", "fail", "inconclusive")),
    "cells[].generator": _OBJECT,
    "cells[].generator.cpu": _NUMBER,
    "cells[].generator.runqueue_wait": _NUMBER_OR_NULL,
    "cells[].generator.loop_lag_p50_ms": _NUMBER_OR_NULL,
    "cells[].generator.loop_lag_p99_ms": _NUMBER_OR_NULL,
    "cells[].generator.loop_lag_max_ms": _NUMBER_OR_NULL,
    "cells[].generator.schedule_lag_p99_ms": _NUMBER_OR_NULL,
    "cells[].generator.connection_wait_p99_ms": _NUMBER_OR_NULL,
    "cells[].generator.connection_wait_share": _NUMBER_OR_NULL,
    "cells[].generator.gc_pause_max_ms": _NUMBER_OR_NULL,
    "cells[].generator.clock_resolution_ms": _NUMBER_OR_NULL,
    "cells[].generator.clock_uncertainty_ms": _NUMBER_OR_NULL,
    "cells[].generator.healthy": Key((bool,), nullable=True),
    "cells[].engine": Key((dict,), nullable=True),
    "cells[].engine.cpu": _NUMBER,
    "cells[].engine.runqueue_wait": _NUMBER,
    "cells[].engine.others_cpu": _NUMBER,
    "cells[].engine.starved": _NUMBER,
    "cells[].engine.gateway_starved": _NUMBER,
    "cells[].rtt_ms": _NUMBER_OR_NULL,
    "cells[].connect": _OBJECT,
    "cells[].connect.attempted": _COUNT,
    "cells[].connect.succeeded": _COUNT,
    "cells[].connect.refused": _OBJECT,
    "cells[].connect.refused{}": Key((int,)),
    "cells[].connect.messages": _OBJECT,
    "cells[].connect.messages{}": Key((str,)),
    "cells[].connect.phases_ms": _OBJECT,
    "cells[].connect.phases_ms{}": Key((dict,)),
    **{f"cells[].connect.phases_ms{{}}.{name}": _NUMBER_OR_NULL for name in (*PERCENTILES, "mean")},
    "cells[].connect.elapsed_ms": _NUMBER_OR_NULL,
    "cells[].connect.rate_per_s": _NUMBER_OR_NULL,
    "cells[].connect.client_cpu_ms": _NUMBER_OR_NULL,
    "cells[].connect.tokens_signed": _COUNT,
    "cells[].connect.memory_bytes_per_connection": Key((int,), nullable=True),
    "cells[].limited_by": Key((str,), nullable=True, choices=LIMITS),
    "cells[].verdict": _OBJECT,
    "cells[].verdict.outcome": Key((str,), choices=VERDICTS),
    "cells[].verdict.reasons": _LIST,
    "cells[].verdict.reasons[]": Key((str,)),
    "cells[].invariants": Key((dict,), nullable=True),
    "cells[].invariants{}": Key((int,)),
    "cells[].cost": Key((dict,), nullable=True),
    "cells[].cost.dpu": _NUMBER_OR_NULL,
    "cells[].cost.compute_dpu": _NUMBER_OR_NULL,
    "cells[].cost.read_dpu": _NUMBER_OR_NULL,
    "cells[].cost.write_dpu": _NUMBER_OR_NULL,
    "cells[].cost.multi_region_write_dpu": _NUMBER_OR_NULL,
    "cells[].cost.usd": _NUMBER_OR_NULL,
    "cells[].cost.estimated": _FLAG,
    "cells[].cost.source": Key((str,), choices=("engine", "cloudwatch", "unit costs", "time")),
    "cells[].cost.began_at": _TEXT,
    "cells[].cost.ended_at": _TEXT,
    "cells[].simulated": _FLAG,
    "experiments": _OBJECT,
    "experiments{}": Key((dict,)),
}


def problems(value: Any) -> Iterator[str]:
    """Yield a sentence for everything in which `value` is not a results file of this schema."""
    if not isinstance(value, dict):
        yield f"it holds {_named(value)}, not an object"
        return
    yield from _object_problems(value, "", "")


def _object_problems(value: Mapping[str, Any], path: str, shown: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    fixed = {
        key.removeprefix(prefix): key
        for key in KEYS
        if key.startswith(prefix) and not any(mark in key.removeprefix(prefix) for mark in (".", "[", "{"))
    }
    for name, key in fixed.items():
        if name in value:
            yield from _value_problems(value[name], key, f"{shown}.{name}" if shown else name)
        else:
            yield f"the key {shown}{'.' if shown else ''}{name} is missing"
    anything = f"{path}{{}}"
    for name, member in value.items():
        if name not in fixed:
            where = f"{shown}.{name}" if shown else name
            if anything in KEYS:
                yield from _value_problems(member, anything, where)
            elif path != "experiments{}":  # an experiment's own figures: any names
                yield f"the key {where} is unknown"


def _value_problems(value: Any, path: str, shown: str) -> Iterator[str]:
    key = KEYS[path]
    if value is None:
        if not key.nullable:
            yield f"{shown} is null"
        return
    # bool is an int in Python, never in the file.
    if not isinstance(value, key.types) or (isinstance(value, bool) and bool not in key.types):
        yield f"{shown} is {_named(value)}, not {' or '.join(_NAMES[one] for one in key.types)}"
    elif key.choices and value not in key.choices:
        yield f"{shown} is {value!r}, not one of {', '.join(key.choices)}"
    elif isinstance(value, dict):
        yield from _object_problems(value, path, shown)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _value_problems(member, f"{path}[]", f"{shown}[{index}]")


_NAMES: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def _named(value: Any) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def inconsistencies(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for everything that contradicts itself in a file whose keys are in order.

    The outcomes of every transaction add up to its arrivals, percentiles rise, no objective counts more requests over
    its limit than it has, and connections made and refused are no more than were attempted.
    """
    seen = set()
    for cell in results["cells"]:
        where = f"cell {cell['id']}"
        if cell["id"] in seen:
            yield f"{where} is there twice"
        seen.add(cell["id"])
        for name, one in cell["transactions"].items():
            total = sum(one["outcomes"].values())
            if total != one["count"]:
                yield f"{where}: the outcomes of {name} add up to {total}, its arrivals are {one['count']}"
            for part in ("latency_ms", "wait_ms", "service_ms", "backoff_ms"):
                yield from _unordered(one[part], f"{where}: {part} of {name}")
        yield from _series_contradictions(cell, where)
        for name, summary in cell["connect"]["phases_ms"].items():
            yield from _unordered(summary, f"{where}: the connection phase {name}")
        for one in cell["objectives"]:
            if one["over"] > one["n"]:
                label = f"{one['transaction'] or 'the cell'} {one['metric']}"
                yield f"{where}: {label} counts {one['over']} over its limit of only {one['n']}"
        connect = cell["connect"]
        decided = connect["succeeded"] + sum(connect["refused"].values())
        if decided > connect["attempted"]:
            yield f"{where}: {decided} connections were made or refused of only {connect['attempted']} attempted"


def _series_contradictions(cell: Mapping[str, Any], where: str) -> Iterator[str]:
    series = cell["series"]
    if series is None:
        return
    if len({len(column) for name, column in series.items() if name != "step_s"}) != 1:
        yield f"{where}: the columns of its series differ in length"
    committed = sum(one["outcomes"][name] for one in cell["transactions"].values() for name in ("ok", "ok_retried"))
    if sum(series["success"]) != committed:
        yield f"{where}: its series has {sum(series['success'])} successes, its outcomes {committed}"


def _unordered(summary: Mapping[str, float | None], what: str) -> Iterator[str]:
    values = [summary[name] for name in PERCENTILES]
    known = [one for one in values if one is not None]
    if known and len(known) < len(values):
        yield f"{what}: some percentiles are null and some are not"
    if known != sorted(known):
        yield f"{what}: the percentiles don't rise: {', '.join(map(str, known))}"
