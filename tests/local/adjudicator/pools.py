"""Statements for the interleavings: few keys, so that sessions meet; simple statements first, so that failures shrink.

A pool is a tuple to draw from: one number per statement is all that Hypothesis has to generate and to shrink.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tests.local.adjudicator.model.schema import BY_NAME, CHILDREN
from tests.local.adjudicator.model.statements import (
    Assign,
    Batch,
    Begin,
    Commit,
    Copy,
    Delete,
    Fault,
    Insert,
    OnConflict,
    Read,
    Rollback,
    Statement,
    Update,
    UpdateFrom,
    Where,
    Write,
)

_Random: TypeAlias = random.Random

#: Keys that exist at the beginning come first and often.
_KEYS: Final = (1, 1, 1, 1, 2, 2, 3, 4, 0)
_UNIQUE: Final = (None, 1, 2, 3, 4, 5, 6)
_CODES: Final = (None, 11, 12, 13, 14, 15)


def _key(column: str, r: _Random) -> Where:
    return Where(column, "=", (r.choice(_KEYS),))


def _where(column: str, r: _Random) -> Where:
    kind = r.random()
    if kind < 0.6:
        return _key(column, r)
    if kind < 0.8:
        return Where(column, "IN", tuple(sorted(r.sample(sorted(set(_KEYS)), r.randint(2, 3)))))
    if kind < 0.95:
        return Where(column, r.choice((">=", "<=")), (r.choice(_KEYS),))
    return Where()


def _item_where(r: _Random) -> Where:
    return Where("u", "=", (r.choice(_UNIQUE[1:]) or 1,)) if r.random() < 0.1 else _where("k", r)


def _item_row(r: _Random) -> tuple[int | None, ...]:
    return (r.choice(_KEYS), r.choice(_UNIQUE), r.randint(0, 9))


def _two_rows(r: _Random) -> tuple[tuple[int | None, ...], ...]:
    # With equal keys they would have several faults at once, and which one is told first is nobody's promise.
    one, other = r.sample(sorted(set(_KEYS)), 2)
    first, second = r.sample(_UNIQUE[1:], 2)
    return (one, r.choice((None, first)), r.randint(0, 9)), (other, r.choice((None, second)), r.randint(0, 9))


def _on_conflict(r: _Random) -> OnConflict:
    kind = r.random()
    if kind < 0.4:
        return OnConflict(r.choice((None, "k", "u")))
    if kind < 0.9:
        return OnConflict(r.choice(("k", "k", "u")), Assign("v", r.randint(-9, 9), add=True))
    return OnConflict("k", Assign("u", r.choice(_UNIQUE)))


_ITEM: Final[tuple[Callable[[_Random], Write], ...]] = (
    lambda r: Update("item", _item_where(r), Assign("v", r.randint(-4, 9), add=True)),
    lambda r: Update("item", _item_where(r), Assign("v", r.randint(-4, 9), add=True), returning=True),
    lambda r: Update("item", _item_where(r), Assign("v", r.randint(0, 9)), r.random() < 0.5),
    lambda r: Update("item", _key("k", r), Assign("v", r.randint(0, 9), add=True), returning=True),
    lambda r: Delete("item", _key("k", r), r.random() < 0.5),
    lambda r: Insert("item", (_item_row(r),), None, r.random() < 0.5),
    lambda r: Insert("item", (_item_row(r),), _on_conflict(r), r.random() < 0.5),
    lambda r: Insert("item", _two_rows(r), r.choice((None, _on_conflict(r))), r.random() < 0.5),
    lambda r: Update("item", _key("k", r), Assign("u", r.choice(_UNIQUE)), r.random() < 0.5),
    lambda r: Update("item", _key("k", r), Assign("k", r.choice(_KEYS)), r.random() < 0.5),
    lambda r: Copy("item", _key("k", r), r.choice((1, 2, 3)), r.random() < 0.5),
    lambda r: UpdateFrom("item", "v", "parent", "note", _where("k", r)),
    lambda r: Delete("item", _item_where(r), r.random() < 0.5),
)

_PARENT: Final[tuple[Callable[[_Random], Write], ...]] = (
    lambda r: Delete("parent", _key("k", r), r.random() < 0.5),
    lambda r: Update("parent", _where("k", r), Assign("note", r.randint(0, 9)), r.random() < 0.5),
    lambda r: Insert("parent", ((r.choice(_KEYS), r.choice(_CODES), r.randint(0, 9)),), None, r.random() < 0.5),
    lambda r: Insert(
        "parent",
        ((r.choice(_KEYS), r.choice(_CODES), r.randint(0, 9)),),
        OnConflict("k", Assign("note", r.randint(0, 9))),
        r.random() < 0.5,
    ),
    lambda r: Update("parent", _key("k", r), Assign("k", r.choice(_KEYS)), r.random() < 0.5),
    lambda r: Update("parent", _key("k", r), Assign("code", r.choice(_CODES)), r.random() < 0.5),
    lambda r: Insert(
        "parent", ((r.choice(_KEYS), r.choice(_CODES), r.randint(0, 9)),), OnConflict(None), r.random() < 0.5
    ),
)


def _child(r: _Random) -> Write:
    table = r.choice(CHILDREN)
    assert table.foreign_key is not None
    parent = r.choice(_CODES if table.foreign_key.parent_column == "code" else (*_KEYS, None))
    kind = r.random()
    if kind < 0.5:
        return Insert(table.name, ((r.randint(0, 9), parent, r.randint(0, 9)),), None, r.random() < 0.5)
    if kind < 0.7:
        return Update(table.name, _key("k", r), Assign("p", parent), r.random() < 0.5)
    if kind < 0.85:
        return Update(table.name, _where("k", r), Assign("note", r.randint(0, 9)), r.random() < 0.5)
    return Delete(table.name, _key("k", r), r.random() < 0.5)


_OTHERS: Final[tuple[Callable[[_Random], Write], ...]] = (
    lambda r: Update("heap", _where("n", r), Assign("v", r.randint(1, 9), add=True), r.random() < 0.5),
    lambda r: Insert("heap", ((r.choice(_KEYS), r.randint(0, 9)),), None, r.random() < 0.5),
    lambda r: Delete("heap", _key("n", r), r.random() < 0.5),
    lambda r: Insert("ticket", ((r.choice(_KEYS),),), r.choice((None, OnConflict(None))), r.random() < 0.7),
    lambda r: Delete("ticket", _key("k", r), r.random() < 0.5),
)


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """What the sessions of one example are about."""

    writes: Callable[[_Random], Write]
    tables: tuple[str, ...]

    def read(self, r: _Random, lock: str | None) -> Read:
        """A SELECT."""
        table = BY_NAME[r.choice(self.tables)]
        return Read(table.name, _where(table.key or "n", r), lock)

    def lock(self, r: _Random) -> Read:
        """A SELECT that takes part in conflicts."""
        return self.read(r, r.choice(("UPDATE", "UPDATE", "KEY SHARE")))


def _item(r: _Random) -> Write:
    return r.choice(_ITEM)(r)


def _family(r: _Random) -> Write:
    return r.choice(_PARENT)(r) if r.random() < 0.45 else _child(r)


def _other(r: _Random) -> Write:
    return r.choice(_OTHERS)(r)


def _any(r: _Random) -> Write:
    return r.choice((_item, _family, _other))(r)


_FAMILY_TABLES: Final = ("parent", *(child.name for child in CHILDREN))
SUBJECTS: Final = (
    Subject(_item, ("item",)),
    Subject(_family, _FAMILY_TABLES),
    Subject(_other, ("heap", "ticket")),
    Subject(_any, ("item", *_FAMILY_TABLES, "heap", "ticket")),
)


def _batch(subject: Subject, r: _Random, *, whole: bool) -> Batch:
    parts: list[Statement] = []
    for _ in range(r.randint(2, 4)):
        kind = r.random()
        parts.append(subject.writes(r) if kind < 0.7 else subject.lock(r) if kind < 0.8 else subject.read(r, None))
    if r.random() < 0.05:
        parts.append(Fault())
    if whole:
        parts = [Begin(), *parts, Commit()]
    return Batch(tuple(parts), r.random() < 0.5)


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """What a session may do next: outside a transaction, and inside one. The same number means alike things."""

    outside: tuple[Statement | Batch, ...]
    inside: tuple[Statement | Batch, ...]


def _pool(subject: Subject) -> Pool:
    r = random.Random("interleavings")
    outside: list[Statement | Batch] = []
    inside: list[Statement | Batch] = []

    def add(share: float, *makers: Callable[[], Statement | Batch]) -> None:
        for _ in range(round(share * POOL_SIZE)):
            made = [maker() for maker in makers]
            outside.append(made[0])
            inside.append(made[-1])

    add(0.32, Begin, lambda: subject.writes(r))
    add(0.17, Begin, Commit)
    add(0.01, lambda: Begin(read_only=True), Rollback)
    add(0.20, lambda: subject.writes(r))
    add(0.10, lambda: subject.read(r, None))
    add(0.11, lambda: subject.lock(r))
    add(0.04, lambda: _batch(subject, r, whole=False))
    add(0.04, lambda: _batch(subject, r, whole=True), lambda: subject.writes(r))
    add(0.01, Fault)
    return Pool(tuple(outside), tuple(inside))


POOL_SIZE: Final = 2_000
POOLS: Final = tuple(map(_pool, SUBJECTS))
