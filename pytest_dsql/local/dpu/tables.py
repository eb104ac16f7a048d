"""What estimates need to know of tables: how large a row is, and which columns are indexed."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.dialect.rewriting import literal
from pytest_dsql.local.dpu.formulas import LEAST_ENTRY

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.superuser import SuperuserConnection

_LOG: Final = logging.getLogger(__name__)

#: Rows that are looked at to learn how large a table's rows are.
_SAMPLE: Final = 1_000
_LOCK_TIMEOUT: Final = "200ms"

#: The table of this name, and schema where one is given; where it isn't, any, `public` first.
_FIND: Final = """
SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = {name} AND c.relkind = 'r' AND (n.nspname = {schema} OR {schema} IS NULL)
  AND n.nspname !~ '^(pg_|pytest_dsql_engine)'
ORDER BY n.nspname <> 'public' LIMIT 1"""
_INDEXES: Final = """
SELECT (SELECT coalesce(json_agg(attname), '[]') FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k JOIN pg_attribute AS a
        ON a.attrelid = i.indrelid AND a.attnum = k)
FROM pg_index AS i WHERE i.indrelid = {} AND NOT i.indisprimary"""
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


async def look_up(socket_path: str, names: Iterable[str]) -> Mapping[str, Table]:
    """Ask PostgreSQL about tables, by `name` or `schema.name`; those that can't be looked at are left out.

    Takes some milliseconds, and waits for a table that is being changed for no longer than a fraction of a second.
    """
    from pytest_dsql.local.gateway.opening import BackendRefused
    from pytest_dsql.local.gateway.superuser import QueryFailed, SuperuserConnection

    found: dict[str, Table] = {}
    try:
        connection = await SuperuserConnection.open(socket_path, application_name="dpu", lock_timeout=_LOCK_TIMEOUT)
        try:
            for name in set(names):
                with contextlib.suppress(QueryFailed):  # it is being changed, or is none any more
                    table = await _look_at(connection, name)
                    if table is not None:
                        found[name] = table
        finally:
            connection.close()
    except (OSError, BackendRefused):
        _LOG.warning("PostgreSQL can't be asked about tables", exc_info=True)
    return found


async def _look_at(connection: SuperuserConnection, name: str) -> Table | None:
    schema, _, relation = name.rpartition(".")
    known = await connection.query(_FIND.format(name=literal(relation), schema=literal(schema) if schema else "NULL"))
    if not known:
        return None
    identity, qualified = known[0]
    [(size,)] = await connection.query(_ROW.format(qualified, _SAMPLE))
    indexes = await connection.query(_INDEXES.format(identity))
    row_bytes = float(size) if size else 0.0
    return Table(max(row_bytes, LEAST_ENTRY), tuple(frozenset(json.loads(columns)) for (columns,) in indexes))
