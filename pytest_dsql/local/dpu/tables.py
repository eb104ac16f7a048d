"""What estimates need to know of tables: how large a row is, and which columns are indexed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.local.cluster import DATABASE
from pytest_dsql.local.dpu.formulas import LEAST_ENTRY
from pytest_dsql.local.postgres import SUPERUSER

if TYPE_CHECKING:
    import psycopg

_LOG: Final = logging.getLogger(__name__)

#: Rows that are looked at to learn how large a table's rows are.
_SAMPLE: Final = 1_000
_LOCK_TIMEOUT: Final = "200ms"

#: The table of this name, and schema where one is given; where it isn't, any, `public` first.
_FIND: Final = """
SELECT c.oid, n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = %(name)s AND c.relkind = 'r' AND (n.nspname = %(schema)s OR %(schema)s IS NULL)
  AND n.nspname !~ '^(pg_|pytest_dsql_engine)'
ORDER BY n.nspname <> 'public' LIMIT 1"""
_INDEXES: Final = """
SELECT ARRAY(SELECT attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k JOIN pg_attribute AS a
             ON a.attrelid = i.indrelid AND a.attnum = k)
FROM pg_index AS i WHERE i.indrelid = %s AND NOT i.indisprimary"""
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

    found: dict[str, Table] = {}
    parameters: dict[str, Any] = {
        "host": str(Path(socket_path).parent),
        "user": SUPERUSER,
        "dbname": DATABASE,
        "options": f"-c lock_timeout={_LOCK_TIMEOUT}",
    }
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            for name in set(names):
                with contextlib.suppress(psycopg.Error):  # it is being changed, or is none any more
                    table = _look_at(connection, name)
                    if table is not None:
                        found[name] = table
    except psycopg.OperationalError:
        _LOG.warning("PostgreSQL can't be asked about tables", exc_info=True)
    return found


def _look_at(connection: psycopg.Connection[Any], name: str) -> Table | None:
    from psycopg import sql

    schema, _, relation = name.rpartition(".")
    known = connection.execute(_FIND, {"schema": schema or None, "name": relation}).fetchone()
    if known is None:
        return None
    identity, *qualified = known
    row = connection.execute(sql.SQL(_ROW).format(sql.Identifier(*qualified), sql.Literal(_SAMPLE))).fetchone()
    indexes = connection.execute(_INDEXES, [identity]).fetchall()
    size = float(row[0]) if row is not None and row[0] is not None else 0.0
    return Table(max(size, LEAST_ENTRY), tuple(frozenset(one[0]) for one in indexes))
