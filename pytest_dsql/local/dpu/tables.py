"""What estimates need to know of tables: how large a row is, and which columns are indexed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from pytest_dsql.local.cluster import DATABASE
from pytest_dsql.local.dpu.formulas import LEAST_ENTRY
from pytest_dsql.local.postgres import SUPERUSER

#: Rows that are looked at to learn how large a table's rows are.
_SAMPLE: Final = 1_000
_LOCK_TIMEOUT: Final = "200ms"

_INDEXES: Final = """
SELECT ARRAY(SELECT attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k JOIN pg_attribute AS a
             ON a.attrelid = i.indrelid AND a.attnum = k)
FROM pg_index AS i WHERE i.indrelid = %s::regclass AND NOT i.indisprimary"""
#: A stored row's header isn't part of what DSQL stores. NULL where there are no rows.
_ROW: Final = "SELECT avg(pg_column_size(t.*)) - 24 FROM (SELECT * FROM {} LIMIT {}) AS t"


@final
@dataclass(frozen=True, slots=True)
class Table:
    """What is known of a table. DSQL keeps rows in the primary key, so that is no index beside the table."""

    row_bytes: float = LEAST_ENTRY  #: at least `LEAST_ENTRY`
    indexes: tuple[frozenset[str], ...] = ()  #: the columns of each secondary index's key

    def written_bytes(self, verb: str, columns: frozenset[str] = frozenset()) -> float:
        """Bytes written for one row by INSERT, UPDATE or DELETE; `columns` are those that UPDATE sets."""
        entries = len(self.indexes)
        if verb == "UPDATE":
            entries = sum(not columns.isdisjoint(index) for index in self.indexes)
        row = LEAST_ENTRY if verb == "DELETE" else self.row_bytes
        return row + entries * LEAST_ENTRY


UNKNOWN: Final = Table()


def look_up(socket_path: str, names: Iterable[str]) -> Mapping[str, Table]:
    """Ask PostgreSQL about tables, by `name` or `schema.name`; those that can't be looked at are left out.

    Takes some milliseconds, and waits for a table that is being changed for no longer than a fraction of a second.
    """
    import psycopg
    from psycopg import sql

    found: dict[str, Table] = {}
    directory = str(Path(socket_path).parent)
    options = f"-c lock_timeout={_LOCK_TIMEOUT} -c search_path=public"
    user, database = SUPERUSER, DATABASE
    with psycopg.connect(host=directory, user=user, dbname=database, options=options, autocommit=True) as connection:
        for name in set(names):
            identifier = sql.Identifier(*name.split(".", 1))
            try:
                row = connection.execute(sql.SQL(_ROW).format(identifier, sql.Literal(_SAMPLE))).fetchone()
                indexes = connection.execute(_INDEXES, [identifier.as_string(connection)]).fetchall()
            except psycopg.Error:
                continue
            size = float(row[0]) if row is not None and row[0] is not None else 0.0
            found[name] = Table(max(size, LEAST_ENTRY), tuple(frozenset(one[0]) for one in indexes))
    return found
