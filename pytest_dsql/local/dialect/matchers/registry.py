"""The matchers by name, and how a rule is held against a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from pytest_dsql.local.dialect.rulebook import Rule
from pytest_dsql.local.dialect.tree import Body, Statement

#: What a matcher found: the fields of the rule's text; and `place`, where it was found, when several places are looked
#: at one after the other.
Fields: TypeAlias = "Mapping[str, Any]"


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that a rule may refuse."""

    body: Body
    options: Mapping[str, Any]  #: the rule's
    statement: Statement  #: the one that the node is part of


Matcher: TypeAlias = "Callable[[Candidate], Fields | None]"

MATCH: Final[Fields] = {}  #: a match whose text needs no fields

MATCHERS: Final[dict[str, Matcher]] = {}  #: by the names that the rules use


def matcher(function: Matcher) -> Matcher:
    """Register a matcher under its name (without the underscore in front)."""
    MATCHERS[function.__name__.removeprefix("_")] = function
    return function


def match(rule: Rule, body: Body, statement: Statement) -> Fields | None:
    """Return the fields of the rule's text when the rule refuses this node, else None."""
    for path, values in rule.where.items():
        value: Any = body
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        # `true` means that the field is there, whatever it holds; a field that is left out is false.
        if value not in values and bool(value) not in values:
            return None
    return MATCHERS[rule.match](Candidate(body, rule.options, statement))


@matcher
def _node(_: Candidate) -> Fields | None:
    return MATCH
