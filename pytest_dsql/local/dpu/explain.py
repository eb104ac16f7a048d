"""The DPU estimate with which DSQL ends the answer to EXPLAIN ANALYZE VERBOSE.

AWS user guide, "Understanding DPUs in EXPLAIN ANALYZE". Reading is told from the plan's own row counts and widths,
writing from the rows and from what is known of the table; each row and index entry counts at least 128 bytes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from pytest_dsql.local.dialect.libpg_query import ParseError, parse
from pytest_dsql.local.dialect.tree import bodies, decode, only, string
from pytest_dsql.local.dpu import formulas, plans
from pytest_dsql.local.dpu.formulas import LEAST_ENTRY, Dpu
from pytest_dsql.local.dpu.plans import Executed
from pytest_dsql.local.dpu.tables import UNKNOWN, Table
from pytest_dsql.local.postgres import SUPERUSER

#: The forms of a plan that the estimate is added to.
PlanFormat: TypeAlias = Literal["text", "json"]

_EXPLAIN: Final = re.compile(r"(?>(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*)EXPLAIN\b", re.IGNORECASE | re.DOTALL)
_SCANS: Final = ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Tid Range Scan")
_VERBS: Final = {"Insert": "INSERT", "Update": "UPDATE", "Delete": "DELETE"}
_OFF: Final = ("off", "false", "0")


def explains(sql: str) -> bool:
    """Whether a statement is an EXPLAIN."""
    return _EXPLAIN.match(sql) is not None


def wanted_format(sql: str) -> PlanFormat | None:
    """In which form a statement asks for an estimate: EXPLAIN with both ANALYZE and VERBOSE; None when it doesn't."""
    if not explains(sql):
        return None
    options = _options(sql)
    form = (options.get("format") or "text").lower()
    if any((options.get(name) or "off").lower() in _OFF for name in ("analyze", "verbose")):
        return None
    return "text" if form == "text" else "json" if form == "json" else None


def _options(sql: str) -> dict[str, str]:
    """The options of an EXPLAIN, as they are written; one without a value is `on`."""
    explain = _explain(sql)
    return {one["defname"]: _written(one.get("arg")) for one in bodies(explain.get("options"), "DefElem")}


def _written(argument: Any) -> str:
    if argument is None:
        return "on"
    kind, body = only(argument)
    return str(body.get("ival", 0)) if kind == "Integer" else string(argument) or str(body.get("boolval", False))


def _explain(sql: str) -> dict[str, Any]:
    statements = _trees(sql)
    name, body = only(statements[0]["stmt"]) if statements else ("", {})
    return body if name == "ExplainStmt" else {}


def _trees(sql: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = decode(parse(sql.encode())).get("stmts", [])
    except (ParseError, ValueError):
        return []
    return found


@functools.lru_cache(maxsize=1_024)
def set_columns(sql: str) -> frozenset[str]:
    """The columns that the UPDATEs in a statement set."""
    found: set[str] = set()
    waiting: list[Any] = [_trees(sql)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            update = value.get("UpdateStmt")
            if update is not None:
                found.update(target["name"] for target in bodies(update.get("targetList"), "ResTarget"))
            waiting.extend(child for child in value.values() if isinstance(child, dict | list))
    return frozenset(found)


def read_plan(rows: Sequence[bytes], form: PlanFormat) -> Executed:
    """Read the rows of an EXPLAIN's answer. Raises ValueError for JSON that is none."""
    if form == "json":
        return plans.read_json(json.loads(b"".join(rows)))
    return plans.read_text([row.decode("utf-8", "replace") for row in rows])


def written_tables(executed: Executed) -> set[str]:
    """The tables that a plan wrote to: what has to be looked up."""
    return {node.table for node in executed.nodes() if node.kind in _VERBS and node.table}


def estimate(
    executed: Executed,
    tables: Mapping[str, Table],
    columns: frozenset[str] = frozenset(),
    *,
    multi_region: bool = False,
) -> Dpu:
    """What the plan cost. `columns` are those that its UPDATEs set."""
    read = written = 0.0
    for node in executed.nodes():
        # What the engine looks up for itself is no work of DSQL's.
        if node.kind.removesuffix(" Backward") in _SCANS and not node.table.startswith(f"{SUPERUSER}_sandbox."):
            read += (node.rows + node.removed) * max(node.width, LEAST_ENTRY)
        elif node.kind in _VERBS:
            rows = max(sum(child.rows for child in node.children) - node.conflicting, 0.0)
            table = tables.get(node.table, UNKNOWN)
            written += rows * table.written_bytes(_VERBS[node.kind], columns)
            if node.kind == "Insert":
                # Each key is looked for: in the table, and in ON CONFLICT's case that was all.
                read += (rows + node.conflicting) * LEAST_ENTRY
    return formulas.statement(executed.seconds, read, written, multi_region=multi_region)


def text_lines(dpu: Dpu, *, multi_region: bool = False) -> list[str]:
    """The estimate as lines below a plan."""
    lines = [
        "Statement DPU Estimate:",
        f"  Compute: {dpu.compute:.5f} DPU",
        f"  Read: {_with_minimum(dpu.read, formulas.READ_MINIMUM)}",
        f"  Write: {_with_minimum(dpu.write, formulas.WRITE_MINIMUM)}",
    ]
    if multi_region:
        lines.append(f"  MultiRegionWrite: {_with_minimum(dpu.multi_region_write, formulas.WRITE_MINIMUM)}")
    return [*lines, f"  Total: {dpu.total:.5f} DPU"]


def _with_minimum(value: float, minimum: float) -> str:
    note = f" (Transaction minimum: {minimum:.5f})" if 0 < value < minimum else ""
    return f"{value:.5f} DPU{note}"


def json_object(dpu: Dpu, *, multi_region: bool = False) -> dict[str, float]:
    """The estimate as an object beside a plan; how DSQL writes it in this form is not on record."""
    values = {"Compute": dpu.compute, "Read": dpu.read, "Write": dpu.write}
    if multi_region:
        values["MultiRegionWrite"] = dpu.multi_region_write
    return {name: round(value, 5) for name, value in (values | {"Total": dpu.total}).items()}


def added(rows: list[bytes], form: PlanFormat, dpu: Dpu, *, multi_region: bool = False) -> list[bytes]:
    """The rows of an EXPLAIN's answer with the estimate added to them."""
    if form == "text":
        return [*rows, *(line.encode() for line in text_lines(dpu, multi_region=multi_region))]
    explained = json.loads(b"".join(rows))
    if explained:
        explained[-1]["Statement DPU Estimate"] = json_object(dpu, multi_region=multi_region)
    return [json.dumps(explained, indent=2, ensure_ascii=False).encode()]
