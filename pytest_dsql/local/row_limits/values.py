"""The limits' values, as PostgreSQL knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster
    from pytest_dsql.local.limits import Limits

#: The limits that PostgreSQL enforces: each is a function of this name in the hidden schema.
_KNOWN: Final = (
    "transaction_rows",
    "transaction_bytes",
    "value_bytes",
    "row_bytes",
    "key_bytes",
    "storage_bytes",
    "schemas",
    "tables",
    "views",
    "sequences",
)


def limits_sql(limits: Limits) -> str:
    """The statements that give PostgreSQL these limits; they hold for each session from its next statement on."""
    return "\n".join(
        f"CREATE OR REPLACE FUNCTION pytest_dsql_engine_limits.{name}() RETURNS bigint LANGUAGE sql IMMUTABLE"
        f" AS 'SELECT {int(getattr(limits, name))}::bigint';"
        for name in _KNOWN
    )


async def apply_limits(cluster: Cluster) -> None:
    """Give a cluster's PostgreSQL the cluster's limits."""
    from pytest_dsql.local.gateway.superuser import SuperuserConnection

    connection = await SuperuserConnection.open(cluster.socket_path)
    try:
        await connection.query(limits_sql(cluster.limits))
    finally:
        connection.close()
