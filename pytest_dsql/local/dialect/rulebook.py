"""The rules as data: what each refuses, since when and until when, with which text, and how that is known."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, final

Evidence = Literal["observed", "documented", "inferred"]

_RULES: Final = Path(__file__).parent / "rules"


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """One refusal of DSQL."""

    id: str
    on: tuple[str, ...]  #: the parse tree's node types that it looks at
    match: str  #: the matcher's name
    sqlstate: str
    message: str  #: may hold {fields} that the matcher fills
    evidence: Evidence  #: how the text is known; `inferred`: by the pattern of other texts
    source: str  #: a key of rules/sources.toml
    seen: str  #: year and month of the evidence
    since: date  #: first day of the rule
    until: date | None = None  #: first day without the rule
    detail: str | None = None
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)  #: field of the node -> the values it refuses
    options: Mapping[str, Any] = field(default_factory=dict)  #: what else the matcher needs

    def holds(self, day: date) -> bool:
        """Tell whether the rule is in force on `day`."""
        return self.since <= day and (self.until is None or day < self.until)


_FIELDS: Final = frozenset(Rule.__slots__) - {"options"}


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return all rules, in the order in which they are tried."""
    files = sorted(_RULES.glob("*.toml"))
    return tuple(
        _rule(entry) for file in files for entry in tomllib.loads(file.read_text(encoding="utf-8")).get("rule", ())
    )


@functools.cache
def sources() -> Mapping[str, str]:
    """Return what the rules' `source` keys stand for."""
    return MappingProxyType(tomllib.loads((_RULES / "sources.toml").read_text(encoding="utf-8"))["sources"])


def _rule(entry: dict[str, Any]) -> Rule:
    known = {name: value for name, value in entry.items() if name in _FIELDS}
    options = {name: value for name, value in entry.items() if name not in _FIELDS}
    return Rule(**{**known, "on": tuple(known["on"]), "match": known.get("match", "node"), "options": options})


@functools.lru_cache(maxsize=16)
def in_force(day: date) -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules of a day by the node type that they look at."""
    by_node: dict[str, list[Rule]] = {}
    for rule in rules():
        if rule.holds(day):
            for node in rule.on:
                by_node.setdefault(node, []).append(rule)
    return MappingProxyType({node: tuple(found) for node, found in by_node.items()})
