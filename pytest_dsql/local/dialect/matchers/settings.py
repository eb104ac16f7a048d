"""Matchers of rules/settings.toml: session parameters."""

from __future__ import annotations

from typing import Final

from pytest_dsql.local.dialect.matchers.registry import Candidate, Fields, matcher
from pytest_dsql.local.dialect.tree import Body, integer, string


def _set_name(body: Body) -> str | None:
    return str(body["name"]).lower() if body.get("kind") in ("VAR_SET_VALUE", "VAR_SET_CURRENT") else None


@matcher
def _parameter(at: Candidate) -> Fields | None:
    name = _set_name(at.body)
    return None if name is None or name in at.options["settable"] else {"name": name}


@matcher
def _reserved_parameter(at: Candidate) -> Fields | None:
    name = str(at.body.get("name", "")).lower()
    if not name.startswith(at.options["prefix"]) or name in at.options["known"]:
        return None
    return {"name": name}


_BOOLEANS: Final = ("true", "false", "yes", "no", "on", "off")


@matcher
def _boolean_parameter(at: Candidate) -> Fields | None:
    name = _set_name(at.body)
    if name not in at.options["parameters"] or at.body.get("kind") != "VAR_SET_VALUE":
        return None
    arguments = at.body.get("args", [])
    text = (string(arguments[0]) or "").lower() if arguments else ""
    number = integer(arguments[0]) if arguments else None
    # As PostgreSQL reads a boolean: a prefix of one of the words ("o" alone is neither), or 0 or 1.
    good = (
        number in (0, 1) or text in ("0", "1") or (text not in ("", "o") and any(b.startswith(text) for b in _BOOLEANS))
    )
    return None if good and len(arguments) == 1 else {"name": name}


@matcher
def _search_path(at: Candidate) -> Fields | None:
    if _set_name(at.body) != "search_path":
        return None
    names = [string(argument) or "" for argument in at.body.get("args", ())]
    hidden = [name for name in names if at.options["prefix"] in name.lower()]
    return {"schema": hidden[0]} if hidden else None
