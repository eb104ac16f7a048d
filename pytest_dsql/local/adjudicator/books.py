"""The books: keys that committed transactions freed, relied on or locked, for those whose snapshots are older.

PostgreSQL finds two writers of one row by itself, but some of what DSQL calls a conflict leaves no trace there: a
unique key that a rival deleted can be inserted again, and a lock is forgotten with the transaction that took it. So
they are written down here, for as long as a transaction is open that began before (matrix: AWS user guide, "Concurrency
control in Aurora DSQL"). No I/O.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, final

#: The number of a commit that PostgreSQL has been told of and has not yet answered: newer than every snapshot.
_IN_FLIGHT: Final = 1 << 62


@final
@dataclass(slots=True)
class Keys:
    """What one transaction did to keys. A key is a text; two are the same exactly if their values are."""

    freed: set[str] = field(default_factory=set)  #: deleted, or changed into others
    shared: set[str] = field(default_factory=set)  #: relied on: FOR KEY SHARE, a foreign key
    locked: set[str] = field(default_factory=set)  #: of rows that were locked FOR UPDATE, or had another key changed
    tables: set[str] = field(default_factory=set)  #: names of those with freed keys, or rows that refer to others now

    def __bool__(self) -> bool:
        return bool(self.freed or self.shared or self.locked or self.tables)

    def clear(self) -> None:
        """Forget them all: what they were told of is undone."""
        for keys in (self.freed, self.shared, self.locked, self.tables):
            keys.clear()


@final
class Books:
    """The books of one cluster. Moments are counted: a snapshot and a commit are newer or older than each other."""

    def __init__(self) -> None:
        self._now = 0
        self._snapshots: dict[int, int] = {}  #: how many transactions have each, the oldest first
        self._last: dict[tuple[str, str], int] = {}  #: when what last happened, by what and which key or table
        self._order: deque[tuple[int, tuple[str, str]]] = deque()
        self._in_flight: dict[tuple[str, str], int] = {}
        self._freed_at = -1  #: when keys of a table were last freed

    def snapshot(self) -> int:
        """Count a transaction whose snapshot is taken from now on; `release` it."""
        self._snapshots[self._now] = self._snapshots.get(self._now, 0) + 1
        return self._now

    def release(self, snapshot: int) -> None:
        """Forget a transaction, and what only it could be interested in."""
        left = self._snapshots[snapshot] - 1
        if left:
            self._snapshots[snapshot] = left
            return
        del self._snapshots[snapshot]
        oldest = next(iter(self._snapshots), self._now)
        order = self._order
        while order and order[0][0] <= oldest:
            moment, entry = order.popleft()
            if self._last.get(entry) == moment:
                del self._last[entry]

    def committing(self, keys: Keys) -> None:
        """Note keys of a transaction whose COMMIT is about to be sent. `committed` or `failed` must follow."""
        for entry in _entries(keys):
            self._in_flight[entry] = self._in_flight.get(entry, 0) + 1

    def failed(self, keys: Keys) -> None:
        """Note that the COMMIT has failed."""
        for entry in _entries(keys):
            left = self._in_flight[entry] - 1
            if left:
                self._in_flight[entry] = left
            else:
                del self._in_flight[entry]

    def committed(self, keys: Keys) -> None:
        """Note that the COMMIT has succeeded."""
        self.failed(keys)
        self.record(keys)

    @contextlib.contextmanager
    def commit(self, keys: Keys) -> Iterator[list[bool]]:
        """Note keys of a transaction around its COMMIT; the list gets whether it has succeeded.

        Who went away meanwhile may have committed.
        """
        outcome: list[bool] = []
        noted = Keys(set(keys.freed), set(keys.shared), set(keys.locked), set(keys.tables))
        self.committing(noted)
        try:
            yield outcome
        finally:
            (self.failed if outcome == [False] else self.committed)(noted)

    def record(self, keys: Keys) -> None:
        """Note keys of a transaction that has committed."""
        self._now += 1
        if not self._snapshots:
            # Whoever begins from now on sees it.
            return
        if keys.tables:
            self._freed_at = self._now
        for entry in _entries(keys):
            self._last[entry] = self._now
            self._order.append((self._now, entry))

    def frees_newer(self, tables: Iterable[str], snapshot: int) -> bool:
        """Whether something of one of these tables was freed, or is being freed, after a snapshot."""
        if self._freed_at <= snapshot and not self._in_flight:
            return False  # asked for every statement that writes, and nearly always so
        return any(self._when(("table", table)) > snapshot for table in tables)

    def conflict(self, keys: Keys, inserted: Iterable[str], snapshot: int) -> bool:
        """Whether a transaction that did this to keys, and inserted these, must fail."""
        return (
            # Who frees a key that somebody has freed meanwhile has inserted it: there was no row to find it by.
            any(self._when(("freed", key)) > snapshot for key in (*inserted, *keys.freed))
            or any(self._when(("shared", key)) > snapshot for key in (*keys.freed, *keys.locked))
            or any(self._when((kind, key)) > snapshot for key in keys.shared for kind in ("freed", "locked"))
        )

    def _when(self, entry: tuple[str, str]) -> int:
        return _IN_FLIGHT if entry in self._in_flight else self._last.get(entry, -1)

    @property
    def entries(self) -> int:
        """How much is written down."""
        return len(self._last) + len(self._in_flight)


def _entries(keys: Keys) -> Iterable[tuple[str, str]]:
    yield from (("freed", key) for key in keys.freed)
    yield from (("shared", key) for key in keys.shared)
    yield from (("locked", key) for key in keys.locked)
    yield from (("table", table) for table in keys.tables)
