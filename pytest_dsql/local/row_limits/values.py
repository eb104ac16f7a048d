"""The limits' values, as PostgreSQL knows them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from pytest_dsql.local.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster

#: The limits that PostgreSQL enforces: each is a function of this name in the hidden schema.
_KNOWN: Final = (
    "transaction_rows",
    "transaction_bytes",
    "value_bytes",
    "row_bytes",
    "key_bytes",
    "declared_key_bytes",
    "storage_bytes",
    "schemas",
    "tables",
    "views",
    "sequences",
    "columns",
    "indexes",
    "statistics",
    "view_bytes",
)


#: Since then values of text, varchar and char are compressed before their sizes are looked at (AWS user guide, release
#: notes).
_COMPRESSION: Final = date(2026, 8, 26)


def limits_sql(limits: Limits, rules: date) -> str:
    """The statements that give PostgreSQL these limits, as on a day of the rules.

    They hold for each session from its next statement on.
    """
    values = {name: ("bigint", str(int(getattr(limits, name)))) for name in _KNOWN}
    values["compresses_texts"] = ("boolean", str(rules >= _COMPRESSION).lower())
    return "\n".join(
        f"CREATE OR REPLACE FUNCTION pytest_dsql_engine_limits.{name}() RETURNS {kind} LANGUAGE sql IMMUTABLE"
        f" AS 'SELECT {value}::{kind}';"
        for name, (kind, value) in values.items()
    )


def are_made(limits: Limits, rules: date) -> bool:
    """Whether a new cluster's PostgreSQL has these limits already."""
    return limits == DEFAULT and rules >= _COMPRESSION


async def apply_limits(cluster: Cluster) -> None:
    """Give a cluster's PostgreSQL the cluster's limits."""
    from pytest_dsql.local.gateway.superuser import SuperuserConnection

    connection = await SuperuserConnection.open(cluster.socket_path)
    try:
        await connection.query(limits_sql(cluster.limits, cluster.rules))
    finally:
        connection.close()
