"""The tables that model and engine both have: unique keys, and foreign keys with every action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, final

Value: TypeAlias = int | str | None
Row: TypeAlias = Mapping[str, Value]


@final
class Rule(Enum):
    """What becomes of the children when their parent's key goes."""

    NO_ACTION = "NO ACTION"
    RESTRICT = "RESTRICT"
    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"
    SET_DEFAULT = "SET DEFAULT"


@final
@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A column of a table that refers to a unique column of another one."""

    column: str
    parent: str
    parent_column: str
    on_delete: Rule = Rule.NO_ACTION
    on_update: Rule = Rule.NO_ACTION


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A table. All columns are integers but `random`, which holds UUIDs that the server makes up."""

    name: str
    columns: tuple[str, ...]
    key: str | None  #: the primary key's column; None: a table without one
    unique: tuple[str, ...] = ()  #: further unique columns
    not_null: tuple[str, ...] = ()
    not_negative: str | None = None  #: a column with CHECK (... >= 0)
    defaults: Mapping[str, int] | None = None
    random: str | None = None
    foreign_key: ForeignKey | None = None

    @property
    def unique_columns(self) -> tuple[str, ...]:
        """The columns of unique indexes, in the order in which PostgreSQL checks them."""
        return ((self.key,) if self.key is not None else ()) + self.unique

    def constraint(self, column: str) -> str:
        """The name that PostgreSQL gives the unique constraint of a column."""
        return f"{self.name}_pkey" if column == self.key else f"{self.name}_{column}_key"

    @property
    def foreign_key_name(self) -> str:
        """The name that PostgreSQL gives the foreign key."""
        assert self.foreign_key is not None
        return f"{self.name}_{self.foreign_key.column}_fkey"

    def create(self) -> str:
        """The CREATE TABLE statement."""
        return f"CREATE TABLE {self.name} ({', '.join(self._column(column) for column in self.columns)})"

    def _column(self, column: str) -> str:
        words = [column, "uuid" if column == self.random else "int"]
        if column == self.random:
            words.append("DEFAULT gen_random_uuid()")
        if column == self.key:
            words.append("PRIMARY KEY")
        if column in self.unique:
            words.append("UNIQUE")
        if column in self.not_null:
            words.append("NOT NULL")
        if self.defaults and column in self.defaults:
            words.append(f"DEFAULT {self.defaults[column]}")
        if column == self.not_negative:
            words.append(f"CHECK ({column} >= 0)")
        reference = self.foreign_key
        if reference is not None and column == reference.column:
            words.append(f"REFERENCES {reference.parent} ({reference.parent_column})")
            words.append(f"ON DELETE {reference.on_delete.value} ON UPDATE {reference.on_update.value}")
        return " ".join(words)


def _child(name: str, on_delete: Rule, on_update: Rule, parent: str = "parent", column: str = "k") -> Table:
    reference = ForeignKey("p", parent, column, on_delete, on_update)
    defaults = {"p": 0} if on_delete is Rule.SET_DEFAULT else None
    return Table(name, ("k", "p", "note"), "k", defaults=defaults, foreign_key=reference)


ITEM: Final = Table("item", ("k", "u", "v"), "k", unique=("u",), not_null=("v",), not_negative="v")
PARENT: Final = Table("parent", ("k", "code", "note"), "k", unique=("code",))
PLAIN: Final = _child("c_plain", Rule.NO_ACTION, Rule.NO_ACTION)
CASCADE: Final = _child("c_cascade", Rule.CASCADE, Rule.CASCADE)
SET_NULL: Final = _child("c_null", Rule.SET_NULL, Rule.SET_NULL)
SET_DEFAULT: Final = _child("c_default", Rule.SET_DEFAULT, Rule.NO_ACTION)
CODE: Final = _child("c_code", Rule.RESTRICT, Rule.RESTRICT, column="code")
GRANDCHILD: Final = _child("g_cascade", Rule.CASCADE, Rule.NO_ACTION, parent="c_cascade")
HEAP: Final = Table("heap", ("n", "v"), None)
TICKET: Final = Table("ticket", ("k", "id"), "k", random="id")

#: Parents before their children.
TABLES: Final = (ITEM, PARENT, PLAIN, CASCADE, SET_NULL, SET_DEFAULT, CODE, GRANDCHILD, HEAP, TICKET)
BY_NAME: Final = {table.name: table for table in TABLES}
CHILDREN: Final = tuple(table for table in TABLES if table.foreign_key is not None)


def children_of(parent: Table) -> tuple[Table, ...]:
    """The tables that refer to a table."""
    return tuple(
        child for child in CHILDREN if child.foreign_key is not None and child.foreign_key.parent == parent.name
    )


#: What every example begins with. Rows in the order of the table's columns.
INITIAL: Final[Mapping[str, tuple[tuple[Value, ...], ...]]] = {
    "item": ((1, 1, 10), (2, 2, 20), (3, None, 30), (4, 4, 40)),
    "parent": ((0, None, 0), (1, 11, 1), (2, 12, 2), (3, 13, 3), (4, None, 4)),
    "c_plain": ((1, 3, 0),),
    "c_cascade": ((1, 2, 0), (2, 3, 0)),
    "c_null": ((1, 2, 0),),
    "c_default": ((1, 2, 0),),
    "c_code": ((1, 13, 0),),
    "g_cascade": ((1, 2, 0),),
    "heap": ((1, 1), (1, 2)),
}
