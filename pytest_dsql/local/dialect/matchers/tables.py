"""Matchers of rules/tables.toml: columns and constraints of CREATE TABLE and CREATE DOMAIN.

Those that look at each column for itself say with `place` which one it was: PostgreSQL takes one column after the
other, so the first one's fault is answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsql.local.dialect.matchers.registry import MATCH, Candidate, Fields, matcher
from pytest_dsql.local.dialect.matchers.sequences import bad_cache
from pytest_dsql.local.dialect.tree import Body, bodies, columns, integer, only, strings, system_name, type_name


def _constraints(body: Body) -> Iterator[Body]:
    for element in body.get("tableElts", ()):
        kind, element_body = only(element)
        if kind == "Constraint":
            yield element_body
        else:
            yield from bodies(element_body.get("constraints"), "Constraint")


def _type(column: Body) -> str | None:
    return system_name(column.get("typeName", {}).get("names"))


@matcher
def _column_type(at: Candidate) -> Fields | None:
    for place, column in enumerate(columns(at.body)):
        if _type(column) in at.options["types"] and not column["typeName"].get("arrayBounds"):
            return {"type": type_name(column["typeName"]), "place": place}
    return None


@matcher
def _serial_type(at: Candidate) -> Fields | None:
    # Only the bare names: PostgreSQL knows no others, and says so.
    for place, column in enumerate(columns(at.body)):
        type_ = column.get("typeName", {})
        names = strings(type_.get("names"))
        if len(names) == 1 and names[0] in at.options["types"]:
            return {"type": type_name(type_), "place": place}
    return None


@matcher
def _array_type(at: Candidate) -> Fields | None:
    for place, column in enumerate(columns(at.body)):
        if column.get("typeName", {}).get("arrayBounds") and _type(column) in at.options["types"]:
            return {"type": type_name(column["typeName"]), "place": place}
    return None


@matcher
def _column_length(at: Candidate) -> Fields | None:
    most = at.options["most"]
    for place, column in enumerate(columns(at.body)):
        if _type(column) in at.options["types"]:
            length = integer(next(iter(column["typeName"].get("typmods", ())), None))
            if length is not None and length > most:
                return {"most": most, "place": place}
    return None


@matcher
def _collation(at: Candidate) -> Fields | None:
    return _first(at, "collClause")


@matcher
def _column_compression(at: Candidate) -> Fields | None:
    return _first(at, "compression")


def _first(at: Candidate, clause: str) -> Fields | None:
    places = (place for place, column in enumerate(columns(at.body)) if column.get(clause))
    return next(({"place": place} for place in places), None)


@matcher
def _deferrable_key(at: Candidate) -> Fields | None:
    keys = ("CONSTR_PRIMARY", "CONSTR_UNIQUE")
    for element in at.body.get("tableElts", ()):
        kind, element_body = only(element)
        if kind == "Constraint":
            if element_body["contype"] in keys and element_body.get("deferrable"):
                return MATCH
            continue
        # In a column's definition the attribute is a constraint of its own that belongs to the one before it.
        last = None
        for constraint in bodies(element_body.get("constraints"), "Constraint"):
            if not constraint["contype"].startswith("CONSTR_ATTR_"):
                last = constraint["contype"]
            elif constraint["contype"] in ("CONSTR_ATTR_DEFERRABLE", "CONSTR_ATTR_DEFERRED") and last in keys:
                return MATCH
    return None


@matcher
def _constraint(at: Candidate) -> Fields | None:
    return MATCH if any(one["contype"] in at.options["types"] for one in _constraints(at.body)) else None


def _identities(body: Body) -> Iterator[tuple[int, Body, Body]]:
    for place, column in enumerate(columns(body)):
        for one in bodies(column.get("constraints"), "Constraint"):
            if one["contype"] == "CONSTR_IDENTITY":
                yield place, column, one


@matcher
def _identity_type(at: Candidate) -> Fields | None:
    for place, column, _ in _identities(at.body):
        if _type(column) != "int8":
            return {"type": type_name(column["typeName"]), "place": place}
    return None


@matcher
def _identity_cache(at: Candidate) -> Fields | None:
    places = (place for place, _, one in _identities(at.body) if bad_cache(one.get("options")))
    return next(({"place": place} for place in places), None)


@matcher
def _key_type(at: Candidate) -> Fields | None:
    keys = ("CONSTR_PRIMARY", "CONSTR_UNIQUE")
    named: set[str] = set()
    for one in bodies(at.body.get("tableElts"), "Constraint"):
        if one["contype"] in keys:
            named.update(strings(one.get("keys")))
    for column in bodies(at.body.get("tableElts"), "ColumnDef"):
        own = any(one["contype"] in keys for one in bodies(column.get("constraints"), "Constraint"))
        if (own or column.get("colname") in named) and _type(column) in at.options["types"]:
            return {"type": type_name(column["typeName"])}
    return None


@matcher
def _key_column_count(at: Candidate) -> Fields | None:
    most = at.options["most"]
    return {"most": most} if any(len(one.get("keys", ())) > most for one in _constraints(at.body)) else None


@matcher
def _index_parameters(at: Candidate) -> Fields | None:
    return MATCH if any(one.get("options") for one in _key_constraints(at.body)) else None


@matcher
def _index_space(at: Candidate) -> Fields | None:
    return MATCH if any(one.get("indexspace") for one in _key_constraints(at.body)) else None


def _key_constraints(body: Body) -> Iterator[Body]:
    return (one for one in _constraints(body) if one["contype"] in ("CONSTR_PRIMARY", "CONSTR_UNIQUE"))


def _modified(body: Body) -> Iterator[tuple[int, list[int | None]]]:
    """The numeric columns with precision, and scale when it is given."""
    for place, column in enumerate(columns(body)):
        modifiers = column.get("typeName", {}).get("typmods", ())
        if _type(column) == "numeric" and modifiers:
            yield place, [integer(one) for one in modifiers]


@matcher
def _numeric_precision(at: Candidate) -> Fields | None:
    for place, (precision, *_) in _modified(at.body):
        if precision is not None and precision > at.options["precision"]:
            return {"precision": precision, "place": place}
    return None


@matcher
def _numeric_scale(at: Candidate) -> Fields | None:
    for place, (_, *rest) in _modified(at.body):
        if rest and rest[0] is not None and rest[0] > at.options["scale"]:
            return {"scale": rest[0], "place": place}
    return None
