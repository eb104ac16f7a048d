"""What one transaction sees and does: statements on its snapshot and its own writes, with PostgreSQL's own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from tests.local.adjudicator.model.conflicts import Footprint, Item, Mode
from tests.local.adjudicator.model.failures import StatementFailed
from tests.local.adjudicator.model.references import keys_have_gone
from tests.local.adjudicator.model.schema import BY_NAME, TABLES, Row, Table, Value
from tests.local.adjudicator.model.statements import (
    Copy,
    Delete,
    Fault,
    Insert,
    Read,
    Update,
    UpdateFrom,
    Write,
)

#: A table's rows by their place: a number that a row keeps for life.
Rows: TypeAlias = dict[int, Row]
Contents: TypeAlias = dict[str, Rows]


@final
@dataclass(frozen=True, slots=True)
class Result:
    """A statement's answer: its command tag and its rows, None when it gives none."""

    tag: str
    rows: tuple[tuple[Value, ...], ...] | None = None
    ordered: bool = False


@final
@dataclass(slots=True)
class Workspace:
    """A transaction's view of the data: its snapshot changed by its own writes. `new_place` numbers new rows."""

    tables: Contents
    new_place: Callable[[], int]
    random: Callable[[], Value]  #: what the server made up for the row that is being inserted
    footprint: Footprint = field(default_factory=Footprint)
    wrote: bool = False  #: a statement that can write has succeeded, or a row was locked
    changed: set[tuple[str, int]] = field(default_factory=set)  #: tables and places of rows that it wrote
    removed: set[tuple[str, int]] = field(default_factory=set)

    def copy(self) -> Workspace:
        """A workspace to try the next statement in."""
        tables = {name: dict(rows) for name, rows in self.tables.items()}
        footprint = Footprint(dict(self.footprint.items))
        return Workspace(
            tables, self.new_place, self.random, footprint, self.wrote, set(self.changed), set(self.removed)
        )

    def run(self, statement: Read | Write | Fault) -> Result:
        """Run a statement; a failed one raises StatementFailed and leaves a workspace that is of no more use."""
        if isinstance(statement, Fault):
            raise StatementFailed("22012", "division by zero")
        if isinstance(statement, Read):
            return self._read(statement)
        self.wrote = True
        if isinstance(statement, Insert):
            return self._insert(statement)
        if isinstance(statement, Copy):
            return self._copy(statement)
        if isinstance(statement, Update):
            return self._update(statement)
        if isinstance(statement, UpdateFrom):
            return self._update_from(statement)
        return self._delete(statement)

    # Statements.

    def _read(self, statement: Read) -> Result:
        table = BY_NAME[statement.table]
        found = self._matching(table, statement.where.holds)
        if statement.lock is not None:
            self.wrote = True
            mode = Mode.STRONG if statement.lock == "UPDATE" else Mode.KEY_SHARE
            # What the key of a row without one is, is open.
            certain = Mode.NONE if mode is Mode.KEY_SHARE and table.key is None else mode
            for place in found:
                self.touch_row(table, place, certain, mode)
        rows = sorted((values(table, self.tables[table.name][place]) for place in found), key=_nulls_last)
        return Result(f"SELECT {len(rows)}", tuple(rows), ordered=True)

    def _insert(self, statement: Insert) -> Result:
        table = BY_NAME[statement.table]
        given = [column for column in table.columns if column != table.random]
        done: list[int] = []
        overwritten: set[int] = set()
        conflict = statement.on_conflict
        for row_values in statement.rows:
            row: dict[str, Value] = dict(zip(given, row_values, strict=True))
            if table.random is not None:
                row[table.random] = self.random()
            self._check_row(table, row)
            if conflict is not None:
                columns = table.unique_columns if conflict.target is None else (conflict.target,)
                rival = next((p for c in columns if (p := self._holder(table, c, row[c])) is not None), None)
                if rival is not None:
                    if conflict.update is None:
                        # It writes nothing; whether it takes part in conflicts as an INSERT does is not on record.
                        self.touch_row(table, rival, Mode.NONE, Mode.STRONG)
                        continue
                    if rival in overwritten or rival in done:
                        raise StatementFailed("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
                    old = self.tables[table.name][rival]
                    new = {**old, conflict.update.column: conflict.update.applied(old)}
                    self._check_row(table, new)
                    # An upsert that updates is an UPDATE by PostgreSQL's rules, an INSERT by its words.
                    self.replace(table, rival, new, conceivable=Mode.STRONG)
                    self._refer(table, [(old, new)])
                    overwritten.add(rival)
                    continue
            try:
                done.append(self._add(table, row))
            except StatementFailed as failed:
                if conflict is None or len(statement.rows) == 1:
                    raise
                # Which of several rows is met first is PostgreSQL's own affair.
                both = [self._duplicate(table, column) for column in table.unique_columns]
                raise StatementFailed(failed.sqlstate, *both) from None
        self._refer(table, [(None, self.tables[table.name][place]) for place in done])
        affected = sorted([*done, *overwritten])
        return self._written(table, f"INSERT 0 {len(affected)}", affected, wanted=statement.returning)

    def _copy(self, statement: Copy) -> Result:
        table = BY_NAME[statement.table]
        done: list[int] = []
        for place in self._matching(table, statement.where.holds):
            row = dict(self.tables[table.name][place])
            if table.key is not None:
                old = row[table.key]
                assert isinstance(old, int)
                row[table.key] = old + statement.shift
            row |= dict.fromkeys(table.unique)
            try:
                done.append(self._add(table, row))
            except StatementFailed as failed:
                # Which row is met first is PostgreSQL's own affair.
                raise StatementFailed(failed.sqlstate, *failed.messages) from None
        self._refer(table, [(None, self.tables[table.name][place]) for place in done])
        return self._written(table, f"INSERT 0 {len(done)}", done, wanted=statement.returning)

    def _update(self, statement: Update) -> Result:
        table = BY_NAME[statement.table]
        places = self._matching(table, statement.where.holds)
        column = statement.assign.column
        changes = []
        for place in places:
            old = self.tables[table.name][place]
            new = {**old, column: statement.assign.applied(old)}
            self._check_row(table, new)
            # To set a key to what it was is an UPDATE of a key by its words, none by its effect.
            named = Mode.STRONG if column in table.unique_columns else None
            self.replace(table, place, new, conceivable=named)
            changes.append((old, new))
        self._refer(table, changes)
        return self._written(table, f"UPDATE {len(places)}", places, wanted=statement.returning)

    def _update_from(self, statement: UpdateFrom) -> Result:
        table, source = BY_NAME[statement.table], BY_NAME[statement.source]
        assert table.key is not None
        assert source.key is not None
        joined = {
            row[source.key]: row[statement.added]
            for row in self.tables[source.name].values()
            if statement.where.holds(row)
        }
        places = self._matching(table, lambda row: row[table.key or ""] in joined)
        for place in places:
            old = self.tables[table.name][place]
            before, added = old[statement.column], joined[old[table.key]]
            total = before + added if isinstance(before, int) and isinstance(added, int) else None
            new = {**old, statement.column: total}
            self._check_row(table, new)
            self.replace(table, place, new)
        return Result(f"UPDATE {len(places)}")

    def _delete(self, statement: Delete) -> Result:
        table = BY_NAME[statement.table]
        places = self._matching(table, statement.where.holds)
        gone = [self.tables[table.name][place] for place in places]
        rows = tuple(values(table, row) for row in gone)
        for place in places:
            self.remove(table, place)
        keys_have_gone(self, table, [(row, None) for row in gone])
        return Result(f"DELETE {len(places)}", rows if statement.returning else None)

    # Rows.

    def _matching(self, table: Table, holds: Callable[[Row], bool]) -> list[int]:
        return [place for place, row in self.tables[table.name].items() if holds(row)]

    def _holder(self, table: Table, column: str, value: Value) -> int | None:
        """The row that has this value of a unique column."""
        if value is None:
            return None
        return next((place for place, row in self.tables[table.name].items() if row[column] == value), None)

    def _check_row(self, table: Table, row: Row) -> None:
        for column in table.columns:
            if row[column] is None and (column in table.not_null or column == table.key):
                raise StatementFailed(
                    "23502",
                    f'null value in column "{column}" of relation "{table.name}" violates not-null constraint',
                )
        if table.not_negative is not None:
            value = row[table.not_negative]
            if isinstance(value, int) and value < 0:
                raise StatementFailed(
                    "23514",
                    f'new row for relation "{table.name}" violates check constraint '
                    f'"{table.name}_{table.not_negative}_check"',
                )

    def _check_unique(self, table: Table, row: Row, place: int | None) -> None:
        for column in table.unique_columns:
            if self._holder(table, column, row[column]) not in (None, place):
                raise StatementFailed(
                    "23505",
                    self._duplicate(table, column),
                    detail=f"Key ({column})=({row[column]}) already exists.",
                )

    def _duplicate(self, table: Table, column: str) -> str:
        return f'duplicate key value violates unique constraint "{table.constraint(column)}"'

    def _add(self, table: Table, row: Row) -> int:
        self._check_row(table, row)
        self._check_unique(table, row, None)
        place = self.new_place()
        self.tables[table.name][place] = row
        self.changed.add((table.name, place))
        self.touch_row(table, place, Mode.STRONG)
        self._touch_entries(table, row)
        return place

    def replace(self, table: Table, place: int, new: Row, conceivable: Mode | None = None) -> None:
        """Put a row in another one's place."""
        old = self.tables[table.name][place]
        changed = [column for column in table.unique_columns if old[column] != new[column]]
        if changed:
            self._check_unique(table, new, place)
        self.touch_row(table, place, Mode.STRONG if changed else Mode.NON_KEY, conceivable)
        self.tables[table.name][place] = new
        self.changed.add((table.name, place))
        if changed:
            self.touch_row(table, place, Mode.STRONG)
            for row in (old, new):
                self._touch_entries(table, row, changed)

    def remove(self, table: Table, place: int) -> None:
        """Take a row away."""
        self.touch_row(table, place, Mode.STRONG)
        self._touch_entries(table, self.tables[table.name][place])
        del self.tables[table.name][place]
        self.changed.discard((table.name, place))
        self.removed.add((table.name, place))

    def touch_row(self, table: Table, place: int, mode: Mode, conceivable: Mode | None = None) -> None:
        """Note that a row was touched."""
        self.footprint.touch(identity(table, place, self.tables[table.name][place]), mode, conceivable)

    def _touch_entries(self, table: Table, row: Row, columns: Iterable[str] | None = None) -> None:
        for column in table.unique if columns is None else columns:
            if row[column] is not None:
                self.footprint.touch(("entry", table.name, column, row[column]), Mode.STRONG)

    # References.

    def _refer(self, table: Table, changes: Sequence[tuple[Row | None, Row]]) -> None:
        """Look after foreign keys at the end of a statement that has put rows in the place of others, or new ones."""
        keys_have_gone(self, table, [(old, new) for old, new in changes if old is not None])
        for old, new in changes:
            self.check_parent(table, old, new)

    def check_parent(self, table: Table, old: Row | None, new: Row) -> None:
        """Check that a written row's parent is there, and note that it must stay."""
        reference = table.foreign_key
        if reference is None or new[reference.column] is None:
            return
        value = new[reference.column]
        parent = BY_NAME[reference.parent]
        place = self._holder(parent, reference.parent_column, value)
        same = old is not None and old[reference.column] == value
        if place is None:
            if same:
                return
            raise StatementFailed(
                "23503",
                f'insert or update on table "{table.name}" violates foreign key constraint "{table.foreign_key_name}"',
                detail=f'Key ({reference.column})=({value}) is not present in table "{parent.name}".',
            )
        # A reference that stays as it is needs no new look at the parent, but may get one.
        self.touch_row(parent, place, Mode.NONE if same else Mode.KEY_SHARE, Mode.KEY_SHARE)

    def _written(self, table: Table, tag: str, places: list[int], *, wanted: bool) -> Result:
        rows = self.tables[table.name]
        return Result(tag, tuple(values(table, rows[place]) for place in places) if wanted else None)


def values(table: Table, row: Row) -> tuple[Value, ...]:
    """A row in the order of its table's columns."""
    return tuple(row[column] for column in table.columns)


def identity(table: Table, place: int, row: Row) -> Item:
    """What two transactions must both touch to conflict over a row."""
    return ("row", table.name, row[table.key]) if table.key is not None else ("place", table.name, place)


def empty_contents() -> Contents:
    """No rows in any table."""
    return {table.name: {} for table in TABLES}


def _nulls_last(row: tuple[Value, ...]) -> tuple[tuple[bool, Value], ...]:
    return tuple((value is None, 0 if value is None else value) for value in row)
