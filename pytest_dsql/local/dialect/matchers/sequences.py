"""Matchers of rules/sequences.toml."""

from __future__ import annotations

from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import Body, integer, option, system_name, type_name


def bad_cache(options: list[Body] | None) -> bool:
    """Tell whether the options of a sequence lack a CACHE that DSQL accepts: 1, or 65536 and more."""
    cache = integer(option(options, "cache"))
    return cache is None or (cache != 1 and cache < 65536)


@matcher
def _sequence_cache(at: Candidate) -> Fields | None:
    return MATCH if bad_cache(at.body.get("options")) else None


@matcher
def _sequence_type(at: Candidate) -> Fields | None:
    type_ = (option(at.body.get("options"), "as") or {}).get("TypeName")
    if type_ is None or system_name(type_.get("names")) == "int8":
        return None
    return {"type": type_name(type_)}


@matcher
def _changed_cache(at: Candidate) -> Fields | None:
    given = option(at.body.get("options"), "cache") is not None
    return MATCH if given and bad_cache(at.body.get("options")) else None
