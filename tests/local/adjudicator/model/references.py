"""What foreign keys do to children whose parent's key goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.local.adjudicator.model.failures import StatementFailed
from tests.local.adjudicator.model.schema import Row, Rule, Table, Value, children_of

if TYPE_CHECKING:
    from tests.local.adjudicator.model.execution import Workspace


def keys_have_gone(work: Workspace, parent: Table, changes: list[tuple[Row, Row | None]]) -> None:
    """Do what the foreign keys say after rows of `parent` were replaced, or deleted (None); raises StatementFailed."""
    refused: list[str] = []
    details: set[str] = set()
    for old, new in changes:
        for child in children_of(parent):
            reference = child.foreign_key
            assert reference is not None
            key = old[reference.parent_column]
            if key is None or (new is not None and new[reference.parent_column] == key):
                continue
            rule = reference.on_delete if new is None else reference.on_update
            places = [place for place, row in work.tables[child.name].items() if row[reference.column] == key]
            if not places:
                continue
            if rule in (Rule.NO_ACTION, Rule.RESTRICT):
                refused.append(_still_referenced(parent, child))
                details.add(f'Key ({reference.parent_column})=({key}) is still referenced from table "{child.name}".')
            elif rule is Rule.CASCADE and new is None:
                _cascade(work, child, places)
            else:
                target = None if new is None else new[reference.parent_column]
                refused += _point_elsewhere(work, parent, child, places, rule, target)
    if refused:
        raise StatementFailed("23503", *refused, detail=details.pop() if len(refused) == len(details) == 1 else None)


def _cascade(work: Workspace, child: Table, places: list[int]) -> None:
    gone = [work.tables[child.name][place] for place in places]
    for place in places:
        work.remove(child, place)
    keys_have_gone(work, child, [(row, None) for row in gone])


def _point_elsewhere(
    work: Workspace, parent: Table, child: Table, places: list[int], rule: Rule, target: Value
) -> list[str]:
    """Give the children another parent, or none; give the errors that this is refused with, if any."""
    reference = child.foreign_key
    assert reference is not None
    if rule is Rule.SET_NULL:
        target = None
    elif rule is Rule.SET_DEFAULT:
        target = (child.defaults or {}).get(reference.column)
    refused: list[str] = []
    for place in places:
        old = work.tables[child.name][place]
        new = {**old, reference.column: target}
        work.replace(child, place, new)
        try:
            work.check_parent(child, None, new)
        except StatementFailed as failed:
            # PostgreSQL says it either way, depending on whether the default is the key that goes.
            refused += [*failed.messages, _still_referenced(parent, child)]
    return refused


def _still_referenced(parent: Table, child: Table) -> str:
    return (
        f'update or delete on table "{parent.name}" violates foreign key constraint "{child.foreign_key_name}" '
        f'on table "{child.name}"'
    )
