"""What a client can ask in the model, and the SQL for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, final

from tests.local.adjudicator.model.schema import BY_NAME, Row, Table, Value


@final
@dataclass(slots=True)
class Text:
    """SQL being written: values as literals, or as parameters."""

    parameters: bool
    values: list[Value] = field(default_factory=list)

    def value(self, value: Value) -> str:
        """Write a value."""
        if not self.parameters:
            return "NULL" if value is None else str(value)
        self.values.append(value)
        return f"${len(self.values)}"


@final
@dataclass(frozen=True, slots=True)
class Where:
    """A predicate on one column; without a column: every row."""

    column: str | None = None
    operator: str = "="  #: one of =, >=, <=, IN
    values: tuple[int, ...] = ()

    def sql(self, text: Text, of: str = "") -> str:
        """The WHERE clause, with a leading blank; `of` goes before the column."""
        if self.column is None:
            return ""
        if self.operator == "IN":
            return f" WHERE {of}{self.column} IN ({', '.join(map(text.value, self.values))})"
        return f" WHERE {of}{self.column} {self.operator} {text.value(self.values[0])}"

    def holds(self, row: Row) -> bool:
        """Whether a row is meant."""
        if self.column is None:
            return True
        value = row[self.column]
        if not isinstance(value, int):
            return False
        if self.operator == ">=":
            return value >= self.values[0]
        if self.operator == "<=":
            return value <= self.values[0]
        return value in self.values


@final
@dataclass(frozen=True, slots=True)
class Assign:
    """`column = value`, or `column = column + value`."""

    column: str
    value: int | None
    add: bool = False

    def sql(self, text: Text, table: str = "") -> str:
        """The assignment; `table` (with its dot) goes before the column that is read."""
        if self.add:
            return f"{self.column} = {table}{self.column} + {text.value(self.value)}"
        return f"{self.column} = {text.value(self.value)}"

    def applied(self, row: Row) -> Value:
        """The column's new value."""
        old = row[self.column]
        if self.add:
            return old + self.value if isinstance(old, int) and self.value is not None else None
        return self.value


@final
@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN."""

    read_only: bool = False

    def sql(self, text: Text) -> str:
        return "BEGIN READ ONLY" if self.read_only else "BEGIN"


@final
@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT."""

    def sql(self, text: Text) -> str:
        return "COMMIT"


@final
@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK."""

    def sql(self, text: Text) -> str:
        return "ROLLBACK"


@final
@dataclass(frozen=True, slots=True)
class Read:
    """SELECT, with FOR UPDATE or FOR KEY SHARE when `lock` says so."""

    table: str
    where: Where = Where()
    lock: str | None = None

    def sql(self, text: Text) -> str:
        table = BY_NAME[self.table]
        columns = ", ".join(table.columns)
        lock = f" FOR {self.lock}" if self.lock else ""
        return f"SELECT {columns} FROM {self.table}{self.where.sql(text)} ORDER BY {columns}{lock}"


@final
@dataclass(frozen=True, slots=True)
class OnConflict:
    """ON CONFLICT: DO NOTHING without an assignment, else DO UPDATE; no target means any unique key."""

    target: str | None
    update: Assign | None = None


@final
@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT of rows in the order of the table's columns; a `random` column is left to the server."""

    table: str
    rows: tuple[tuple[int | None, ...], ...]
    on_conflict: OnConflict | None = None
    returning: bool = False

    def sql(self, text: Text) -> str:
        table = BY_NAME[self.table]
        columns = [column for column in table.columns if column != table.random]
        rows = ", ".join(f"({', '.join(map(text.value, row))})" for row in self.rows)
        conflict = ""
        if self.on_conflict is not None:
            target = f" ({self.on_conflict.target})" if self.on_conflict.target else ""
            update = self.on_conflict.update
            action = "NOTHING" if update is None else f"UPDATE SET {update.sql(text, self.table + '.')}"
            conflict = f" ON CONFLICT{target} DO {action}"
        return f"INSERT INTO {self.table} ({', '.join(columns)}) VALUES {rows}{conflict}" + returns(
            table, wanted=self.returning
        )


@final
@dataclass(frozen=True, slots=True)
class Copy:
    """INSERT ... SELECT of a table's own rows with other keys: `key + shift`, no other unique values."""

    table: str
    where: Where
    shift: int
    returning: bool = False

    def sql(self, text: Text) -> str:
        table = BY_NAME[self.table]
        chosen = [self._expression(table, column, text) for column in table.columns]
        return (
            f"INSERT INTO {self.table} ({', '.join(table.columns)}) SELECT {', '.join(chosen)} FROM {self.table}"
            f"{self.where.sql(text)}" + returns(table, wanted=self.returning)
        )

    def _expression(self, table: Table, column: str, text: Text) -> str:
        if column == table.key:
            return f"{column} + {text.value(self.shift)}"
        return "NULL" if column in table.unique else column


@final
@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE."""

    table: str
    where: Where
    assign: Assign
    returning: bool = False

    def sql(self, text: Text) -> str:
        return f"UPDATE {self.table} SET {self.assign.sql(text)}{self.where.sql(text)}" + returns(
            BY_NAME[self.table], wanted=self.returning
        )


@final
@dataclass(frozen=True, slots=True)
class UpdateFrom:
    """UPDATE ... FROM: adds the joined row's `added` to `column`, where the keys are equal."""

    table: str
    column: str
    source: str
    added: str
    where: Where  #: on the source

    def sql(self, text: Text) -> str:
        table, source = BY_NAME[self.table], BY_NAME[self.source]
        condition = self.where.sql(text, "s.").replace(" WHERE ", " AND ", 1)
        return (
            f"UPDATE {self.table} SET {self.column} = {self.table}.{self.column} + s.{self.added} "
            f"FROM {self.source} s WHERE s.{source.key} = {self.table}.{table.key}{condition}"
        )


@final
@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE."""

    table: str
    where: Where
    returning: bool = False

    def sql(self, text: Text) -> str:
        return f"DELETE FROM {self.table}{self.where.sql(text)}" + returns(BY_NAME[self.table], wanted=self.returning)


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """A statement that fails whatever the data."""

    def sql(self, text: Text) -> str:
        return "SELECT 1 / 0 FROM item"


@final
@dataclass(frozen=True, slots=True)
class Define:
    """A change of the catalog."""

    text: str
    tag: str

    def sql(self, text: Text) -> str:
        return self.text


def returns(table: Table, *, wanted: bool) -> str:
    """The RETURNING clause with all of a table's columns."""
    return f" RETURNING {', '.join(f'{table.name}.{column}' for column in table.columns)}" if wanted else ""


Write: TypeAlias = Insert | Copy | Update | UpdateFrom | Delete
Statement: TypeAlias = Begin | Commit | Rollback | Read | Write | Fault | Define


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Several statements sent at once: as one query string, or as a pipeline with one Sync."""

    statements: tuple[Statement, ...]
    pipelined: bool
