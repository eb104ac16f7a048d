"""What is known of the tables: keys, foreign keys, defaults; read at once, and again after the catalog has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from pytest_dsql.local.adjudicator.sandbox.forms import form

#: Makes the helpers what they have to be, and answers one row with one column, the JSON text that `Catalog.read` reads.
#: For the superuser, after each committed change of the catalog: until it is answered, no sandbox may be entered.
CATALOG_QUERY: Final = "SELECT pytest_dsql_engine_sandbox.catalog()"


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A unique index that is neither partial nor on expressions."""

    oid: int
    name: str
    columns: tuple[str, ...]
    primary: bool
    nulls_distinct: bool
    expression: str  #: the SQL of a row's key, as text; `{row}` stands for the row's name

    def of(self, row: str) -> str:
        """The SQL of the key of a row of that name; null where the row has none."""
        return self.expression.replace("{row}", row)


@final
@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: `table` references `parent`."""

    oid: int
    name: str
    table: int
    columns: tuple[str, ...]
    parent: int
    parent_columns: tuple[str, ...]
    on_delete: str  #: a, r, c, n, d: no action, restrict, cascade, set null, set default
    on_update: str


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A client's table or view."""

    oid: int
    schema: str
    name: str
    view: bool  #: a view of the client's; of those only the names are known
    columns: tuple[str, ...]  #: in their order
    generated: frozenset[str]  #: GENERATED ALWAYS AS (...) STORED
    identities: frozenset[str]  #: GENERATED ... AS IDENTITY
    always: frozenset[str]  #: of those: GENERATED ALWAYS AS IDENTITY
    ungroupable: frozenset[str]  #: of a type whose values can't be compared
    volatile: frozenset[str]  #: columns whose default differs each time it is asked for, identity columns too
    keys: tuple[Key, ...]
    extra_unique: bool  #: it has unique indexes that are partial or on expressions
    insert_only: bool  #: some role may insert into it, and not read it
    references: tuple[ForeignKey, ...]  #: its own foreign keys
    referenced: tuple[ForeignKey, ...]  #: the foreign keys that point to it
    types: tuple[str, ...]  #: of the columns, as SQL names them
    defaults: tuple[tuple[str, str], ...]  #: columns and their defaults' SQL, identity columns too

    @property
    def identity(self) -> Key | None:
        """A key that each row has: the primary key."""
        return next((key for key in self.keys if key.primary), None)

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that can be written."""
        return tuple(column for column in self.columns if column not in self.generated)

    @property
    def key_columns(self) -> frozenset[str]:
        """The columns that make an UPDATE one of a key (AWS user guide, "Concurrency control in Aurora DSQL")."""
        return frozenset(column for key in self.keys for column in key.columns)


@final
class Catalog:
    """The clients' tables at one moment."""

    __slots__ = ("_by_name", "calling_views", "client_functions", "stale", "tables", "volatile_functions")

    def __init__(
        self,
        tables: Sequence[Table],
        volatile_functions: frozenset[str],
        client_functions: frozenset[str],
        calling_views: frozenset[str] = frozenset(),
        *,
        stale: bool = False,
    ) -> None:
        self.stale = stale  #: some helpers were in use and could not be renewed: to be read again soon
        self.tables: Mapping[int, Table] = {table.oid: table for table in tables}
        self.volatile_functions = volatile_functions  #: the names of functions that may answer anything
        self.client_functions = client_functions  #: of those: the clients' own, which may write
        self.calling_views = calling_views  #: the names of views that call one of these
        self._by_name = {(table.schema, table.name): table for table in tables}

    @classmethod
    def read(cls, text: str) -> Catalog:
        """Read what `CATALOG_QUERY` answered."""
        read: dict[str, Any] = json.loads(text)
        foreign = [_foreign_key(entry) for entry in read["foreign_keys"]]
        volatile = frozenset(read["volatile_functions"])
        tables = [_table(entry, foreign, volatile) for entry in read["tables"]]
        calling = frozenset(read["calling_views"])
        return cls(tables, volatile, frozenset(read["client_functions"]), calling, stale=read["stale"])

    def may_call(self, sql: str) -> bool:
        """Whether a text may call one of the clients' functions, by its name or by that of a view."""
        if not self.client_functions:
            return False
        # Names that aren't quoted mean the same in capitals; behind U& they may be spelled in numbers.
        text = sql.lower()
        return 'u&"' in text or any(name.lower() in text for name in (*self.client_functions, *self.calling_views))

    def find(self, schema: str | None, name: str, schemas: Sequence[str]) -> Table | None:
        """The table that a name means to a session whose search path is `schemas`; None: none of the clients'."""
        for place in (schema,) if schema else schemas:
            found = self._by_name.get((place, name))
            if found is not None:
                return found
        return None


def _foreign_key(entry: dict[str, Any]) -> ForeignKey:
    return ForeignKey(**{**entry, "columns": tuple(entry["columns"]), "parent_columns": tuple(entry["parent_columns"])})


def _table(entry: dict[str, Any], foreign: Sequence[ForeignKey], volatile: frozenset[str]) -> Table:
    return Table(
        oid=entry["oid"],
        schema=entry["schema"],
        name=entry["name"],
        view=entry["view"],
        columns=tuple(entry["columns"]),
        generated=frozenset(entry["generated"]),
        identities=frozenset(entry["identities"]),
        always=frozenset(entry["always"]),
        ungroupable=frozenset(entry["ungroupable"]),
        volatile=frozenset(
            column for column, default in entry["defaults"].items() if form(f"SELECT {default}").functions & volatile
        ),
        keys=tuple(Key(**{**key, "columns": tuple(key["columns"])}) for key in entry["keys"]),
        extra_unique=entry["extra_unique"],
        insert_only=entry["insert_only"],
        references=tuple(key for key in foreign if key.table == entry["oid"]),
        referenced=tuple(key for key in foreign if key.parent == entry["oid"]),
        types=tuple(entry["types"]),
        defaults=tuple(entry["defaults"].items()),
    )
