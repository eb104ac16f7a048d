"""What a plan that was executed says of the work done: rows read and rows written, by table.

Source of the forms: PostgreSQL documentation, "Using EXPLAIN" and "EXPLAIN" (text and JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final


@final
@dataclass(slots=True)
class Node:
    """One node of a plan that reads or writes a table, or feeds one that does."""

    kind: str  #: `Seq Scan`, `Insert`, ...
    table: str  #: `schema.name`; empty where it has none
    rows: float  #: that came out of it, all loops together
    width: int  #: of such a row in bytes, as the planner estimated it; 0 where the plan doesn't say
    removed: float = 0.0  #: rows that it read and left out, all loops together
    conflicting: float = 0.0  #: rows that ON CONFLICT didn't insert
    children: list[Node] = field(default_factory=list)


@final
@dataclass(slots=True)
class Executed:
    """A plan and how long it took."""

    roots: list[Node]
    seconds: float  #: planning and execution

    def nodes(self) -> Iterator[Node]:
        """All nodes, each before its children."""
        waiting = list(reversed(self.roots))
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


_NODE: Final = re.compile(
    r"(?P<indent> *)(?:->  )?(?P<what>\S.*?)  \((?:cost=\S+ rows=\d+ width=(?P<width>\d+)\) \()?"
    r"(?:actual (?:time=(?P<time>\S+) )?rows=(?P<rows>[\d.]+) loops=(?P<loops>\d+)|never executed)\)"
)
_REMOVED: Final = re.compile(r" *Rows Removed by (?:Filter|Index Recheck): (\d+)")
_CONFLICTING: Final = re.compile(r" *Conflicting Tuples: (\d+)")
_TIME: Final = re.compile(r"(?:Planning|Execution) Time: ([\d.]+) ms")
_NAME: Final = r'(?:"(?:[^"]|"")*"|[^\s".]+)'
_ON: Final = re.compile(rf"(?P<kind>.+?) (?:using {_NAME} )?on (?P<table>{_NAME}(?:\.{_NAME})?)(?: |$)")


def read_text(lines: Sequence[str]) -> Executed:
    """Read a plan in text form."""
    roots: list[Node] = []
    above: list[tuple[int, Node, float]] = []  #: the way down to the newest node: how far it is indented, and its loops
    milliseconds = 0.0
    timed = False
    root_ms = 0.0
    for line in lines:
        if found := _NODE.fullmatch(line):
            loops = float(found["loops"] or 0)
            kind, table = _kind_and_table(found["what"])
            node = Node(kind, table, float(found["rows"] or 0) * loops, int(found["width"] or 0))
            indent = len(found["indent"])
            while above and above[-1][0] >= indent:
                above.pop()
            (above[-1][1].children if above else roots).append(node)
            if not above and found["time"]:
                root_ms = float(found["time"].rpartition("..")[2])
            above.append((indent, node, loops))
        elif (found := _TIME.match(line)) is not None:
            milliseconds += float(found[1])
            timed = True
        elif above and (found := _REMOVED.match(line)):
            above[-1][1].removed += float(found[1]) * above[-1][2]
        elif above and (found := _CONFLICTING.match(line)):
            above[-1][1].conflicting += float(found[1])
    return Executed(roots, (milliseconds if timed else root_ms) / 1000)


def _kind_and_table(what: str) -> tuple[str, str]:
    found = _ON.match(what)
    if found is None:
        return what, ""
    return found["kind"], ".".join(part.strip('"').replace('""', '"') for part in re.findall(_NAME, found["table"]))


def read_json(explained: Sequence[dict[str, Any]]) -> Executed:
    """Read plans in JSON form: the decoded answer."""
    roots = [_json_node(one["Plan"]) for one in explained if "Plan" in one]
    times = [one.get(name, 0.0) for one in explained for name in ("Planning Time", "Execution Time")]
    seconds = sum(times) / 1000
    if not seconds:
        seconds = sum(one["Plan"].get("Actual Total Time", 0.0) for one in explained if "Plan" in one) / 1000
    return Executed(roots, seconds)


def _json_node(plan: dict[str, Any]) -> Node:
    loops = plan.get("Actual Loops", 0)
    kind = plan["Operation"] if plan["Node Type"] == "ModifyTable" else plan["Node Type"]
    table = ".".join(plan[key] for key in ("Schema", "Relation Name") if key in plan)
    removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return Node(
        kind,
        table if "Relation Name" in plan else "",
        plan.get("Actual Rows", 0) * loops,
        plan.get("Plan Width", 0),
        removed * loops,
        plan.get("Conflicting Tuples", 0),
        [_json_node(child) for child in plan.get("Plans", ())],
    )
